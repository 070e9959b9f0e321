"""`penstock`: demo, run, explain, doctor, ops."""

from __future__ import annotations

import argparse
import sys
from typing import Any


def main(arguments: list[str] | None = None) -> int:
    """The command line's entry; returns the exit status."""
    parser = argparse.ArgumentParser(prog="penstock", description="Runs TensorFlow-1 graphs without TensorFlow.")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="train a small network on two devices and show every stage of a step")
    demo.add_argument("--out", default="out", help="folder for the timeline and the picture")
    demo.add_argument("--steps", type=int, default=300)
    for name, text in (
        ("doctor", "say whether a GraphDef can run here, and what is missing"),
        ("explain", "show the stages of running some fetches of a GraphDef"),
        ("run", "run some fetches of a GraphDef"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("graph", help="a GraphDef file, binary or text (.pbtxt)")
        if name != "doctor":
            command.add_argument("fetch", nargs="+", help="names of tensors or operations")
            command.add_argument("--feed", action="append", default=[], metavar="NAME=FILE.npy", help="a fed tensor and its value (explain needs no value)")
        if name == "explain":
            command.add_argument("--html", help="write a page with a picture to this file")
    ops = commands.add_parser("ops", help="list the ops that this installation knows")
    ops.add_argument("--markdown", action="store_true", help="as the table in docs/ops.md")
    options = parser.parse_args(arguments)
    try:
        return {"demo": _demo, "doctor": _doctor, "explain": _explain, "run": _run, "ops": _ops}[options.command](options)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1


def _demo(options: Any) -> int:
    from penstock.tools.demo import run

    return 0 if run(options.out, options.steps) > 0.5 else 1


def load_graph_def(path: str) -> Any:
    """Reads a GraphDef: text if the file is called .pbtxt or starts like text, else binary."""
    from google.protobuf import text_format

    from penstock.formats import protos

    with open(path, "rb") as file:
        data = file.read()
    if path.endswith((".pbtxt", ".prototxt")) or data[:5] in (b"node ", b"node{"):
        try:
            return text_format.Parse(data, protos.GraphDef())
        except text_format.ParseError as error:
            raise ValueError(f"{path} is not a GraphDef in text form: {error}") from error
    return protos.parse(data, protos.GraphDef, path)


def _doctor(options: Any) -> int:
    import penstock as tf
    from penstock.tools.doctor import examine

    report = examine(load_graph_def(options.graph))
    print(report)
    return 0 if report.healthy and tf is not None else 1


def _session_for(options: Any) -> tuple[Any, Any, dict[str, Any]]:
    import numpy as np

    import penstock as tf

    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(load_graph_def(options.graph), name="")
    feeds: dict[str, Any] = {}
    for item in options.feed:
        name, _, file = item.partition("=")
        feeds[name if ":" in name else name + ":0"] = np.load(file) if file else None
    fetches = [f if ":" in f or not _has_outputs(graph, f) else f + ":0" for f in options.fetch]
    return tf.Session(graph=graph), fetches, feeds


def _has_outputs(graph: Any, name: str) -> bool:
    op = graph.find(name)
    return op is not None and bool(op.outputs)


def _explain(options: Any) -> int:
    session, fetches, feeds = _session_for(options)
    with session:
        explanation = session.explain(fetches, list(feeds))
        print(explanation)
        if options.html:
            explanation.to_html(options.html)
    return 0


def _run(options: Any) -> int:
    session, fetches, feeds = _session_for(options)
    with session:
        for name, value in zip(fetches, session.run(fetches, feeds), strict=True):
            print(f"{name} = {value}")
    return 0


def _ops(options: Any) -> int:
    import penstock  # noqa: F401 - fills the registry
    from penstock.tools.optable import as_markdown, as_text

    print(as_markdown() if options.markdown else as_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
