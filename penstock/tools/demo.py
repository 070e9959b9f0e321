"""The main job, end to end: trains a digit classifier on two CPU devices, then shows what the runtime did with one step."""

from __future__ import annotations

import os
import time
from typing import Any

from penstock.tools.digits import SIZE, make_digits


def build(tf: Any) -> dict[str, Any]:
    """The classifier: a convolution on the first device, two dense layers on the second, trained with Adam."""
    tf.set_random_seed(1)
    x = tf.placeholder(tf.float32, [None, SIZE, SIZE, 1], name="images")
    y = tf.placeholder(tf.int64, [None], name="labels")
    with tf.device("/cpu:0"), tf.variable_scope("features"):
        w = tf.get_variable("w", [5, 5, 1, 12], initializer=tf.variance_scaling_initializer())
        b = tf.get_variable("b", [12], initializer=tf.zeros_initializer())
        h = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, [1, 2, 2, 1], "SAME"), b))
        h = tf.nn.max_pool(h, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
        h = tf.reshape(h, [-1, (SIZE // 4) ** 2 * 12])
    with tf.device("/cpu:1"), tf.variable_scope("classifier"):
        w1 = tf.get_variable("w1", [(SIZE // 4) ** 2 * 12, 64], initializer=tf.glorot_uniform_initializer())
        b1 = tf.get_variable("b1", [64], initializer=tf.zeros_initializer())
        h = tf.nn.relu(tf.matmul(h, w1) + b1)
        w2 = tf.get_variable("w2", [64, 10], initializer=tf.glorot_uniform_initializer())
        b2 = tf.get_variable("b2", [10], initializer=tf.zeros_initializer())
        logits = tf.matmul(h, w2) + b2
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
        right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32), name="accuracy")
    train = tf.train.AdamOptimizer(2e-3).minimize(loss, colocate_gradients_with_ops=True)
    return {"x": x, "y": y, "loss": loss, "accuracy": right, "train": train}


def run(out: str, steps: int = 300, batch: int = 64) -> float:
    """Trains, reports, writes `out`/timeline.json and `out`/step.html; returns the accuracy on unseen digits."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    import penstock as tf

    console = Console()
    if not console.is_terminal:
        console = Console(width=130)
    os.makedirs(out, exist_ok=True)
    images, labels = make_digits(4000, seed=1)
    test_images, test_labels = make_digits(1000, seed=2)
    with tf.Graph().as_default():
        model = build(tf)
        x, y = model["x"], model["y"]
        config = tf.ConfigProto(device_count={"CPU": 2})
        with tf.Session(config=config) as sess:
            sess.run(tf.global_variables_initializer())
            test = {x: test_images, y: test_labels}
            accuracy = sess.run(model["accuracy"], test)
            console.print(f"[bold]Penstock {tf.penstock_version}[/]: a digit classifier on two CPU devices; untrained, it is right {accuracy:.1%} of the time")
            start = time.perf_counter()
            columns = [TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn()]
            with Progress(*columns, console=console) as progress:
                task = progress.add_task("train", total=steps, note="")
                for step in range(steps):
                    at = step * batch % (len(images) - batch)
                    loss, _ = sess.run([model["loss"], model["train"]], {x: images[at : at + batch], y: labels[at : at + batch]})
                    if (step + 1) % max(steps // 10, 1) == 0 or step + 1 == steps:
                        accuracy = sess.run(model["accuracy"], test)
                        progress.update(task, note=f"loss {loss:.3f}  test accuracy {accuracy:.1%}")
                    progress.advance(task)
            seconds = time.perf_counter() - start
            console.print(f"trained {steps} steps of {batch} digits in {seconds:.1f} s: right on {accuracy:.1%} of 1000 digits it has not seen")
            feed = {x: images[:batch], y: labels[:batch]}
            _report(tf, sess, model, feed, console, out)
    return float(accuracy)


def _report(tf: Any, sess: Any, model: dict[str, Any], feed: dict[Any, Any], console: Any, out: str) -> None:
    fetches = [model["loss"], model["train"]]
    explanation = sess.explain(fetches, list(feed))
    console.print(_stage_table(explanation))
    console.print(_placement_table(explanation))
    metadata = tf.RunMetadata()
    sess.run(fetches, feed, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
    console.print(_kernel_table(metadata.step_stats))
    trace, page = os.path.join(out, "timeline.json"), os.path.join(out, "step.html")
    with open(trace, "w", encoding="utf-8") as file:
        file.write(tf.train.Timeline(metadata.step_stats).generate_chrome_trace_format())
    explanation.to_html(page)
    console.print(f"timeline of that step: [cyan]{trace}[/] (open it in chrome://tracing or ui.perfetto.dev)")
    console.print(f"picture of the partitioned graph: [cyan]{page}[/]")


def _stage_table(explanation: Any) -> Any:
    from rich.table import Table

    table = Table(title="One training step, stage by stage", title_justify="left")
    for name in ("stage", "nodes in", "nodes out", "ms", "what happened"):
        table.add_column(name, justify="left" if name in ("stage", "what happened") else "right", no_wrap=name == "stage")
    before = None
    for stage in explanation.stages:
        notes = "; ".join(stage.notes)
        if stage.name == "partition":
            notes = f"{stage.partitions} partitions, {len(explanation.transfers)} Send/Recv pairs"
        table.add_row(stage.name, "" if before is None else str(before), str(stage.nodes), f"{stage.seconds * 1e3:.1f}", notes[:100])
        before = stage.nodes
    return table


def _placement_table(explanation: Any) -> Any:
    from rich.table import Table

    from penstock.pipeline.explain import short

    table = Table(title="Placement", title_justify="left")
    table.add_column("device")
    table.add_column("nodes", justify="right")
    table.add_column("why, for example")
    for device, count in explanation.placement().items():
        story = next((s for s in explanation.nodes.values() if s.device == device and "asked" in s.reason), None)
        table.add_row(device, str(count), f"{story.name}: {story.reason}" if story else "")
    crossing = explanation.transfers
    table.caption = "values that cross: " + ", ".join(f"{name.split('_', 2)[-1]} {short(a)}→{short(b)}" for name, a, b in crossing[:6]) + (" ..." if len(crossing) > 6 else "")
    return table


def _kernel_table(stats: Any, most: int = 8) -> Any:
    from rich.table import Table

    rows = []
    for device in stats.dev_stats:
        for node in device.node_stats:
            if " = _Recv(" in node.timeline_label:
                continue  # waits for the other device; that is no work
            rows.append(((node.op_end_rel_nanos - node.op_start_rel_nanos) / 1e3 or node.op_end_rel_micros - node.op_start_rel_micros, node, device.device))
    total = sum(r[0] for r in rows) or 1.0
    table = Table(title="Slowest kernels of the step", title_justify="left")
    for name in ("node", "op", "device", "µs", "share"):
        table.add_column(name, justify="right" if name in ("µs", "share") else "left")
    for micros, node, device in sorted(rows, key=lambda r: -r[0])[:most]:
        table.add_row(node.node_name, node.timeline_label.partition(" = ")[2].partition("(")[0], device.rpartition("device:")[2], f"{micros:.0f}", f"{micros / total:.0%}")
    return table
