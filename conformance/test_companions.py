"""Companions of compat.v1 against TensorFlow: losses, metrics, recurrent loops, images, sorting, templates, flags, files, config.

`tf.layers` and `tf.nn.rnn_cell` are not in TensorFlow 2.21 without another package; here a cell is written with plain ops.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from both import compare, penstock, run_both, same_structure, tensorflow

R = np.random.RandomState(0)
A, B = R.rand(4, 3).astype(np.float32), R.rand(4, 3).astype(np.float32)
W = np.array([[1], [0], [2], [3]], np.float32)
REDUCTIONS = ["none", "weighted_sum", "weighted_mean", "weighted_sum_over_batch_size", "weighted_sum_by_nonzero_weights"]


def hold(tf, name, shape=None, dtype="float32"):
    return tf.placeholder(getattr(tf, dtype), shape, name=name)


# -- losses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", [([2, 3], [2, 1]), ([2, 3], []), (None, None), ([None, 3], [None, 1]), ([2, 3], [3]), ([], [])], ids=str)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_weighted_loss_structure(shapes, reduction):
    values, weights = shapes

    def program(tf):
        tf.losses.compute_weighted_loss(hold(tf, "l", values), weights=hold(tf, "w", weights), reduction=reduction)

    if weights == [3]:
        run_both(program, message="weights can not be broadcast to values")
    else:
        same_structure(program)


LOSSES = ["absolute_difference", "huber_loss", "log_loss", "mean_squared_error", "hinge_loss", "mean_pairwise_squared_error", "sigmoid_cross_entropy"]


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name):
    same_structure(lambda tf: getattr(tf.losses, name)(hold(tf, "y", [2, 3]), hold(tf, "p", [2, 3])))
    same_structure(lambda tf: [getattr(tf.losses, name)([1.0, 0.0], [0.2, 0.3]) for _ in range(2)])

    def program(tf):
        y, p = hold(tf, "y"), hold(tf, "p", [None, 3])
        loss = getattr(tf.losses, name)(y, p, weights=W)
        return loss, tf.gradients(loss, [p]), tf.losses.get_losses()

    run_both(program, {"y": A, "p": B})


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_softmax_losses(reduction):
    def program(tf):
        p = hold(tf, "p", [None, 3])
        dense = tf.losses.softmax_cross_entropy(hold(tf, "y"), p, weights=W[:, 0], label_smoothing=0.1, reduction=reduction)
        sparse = tf.losses.sparse_softmax_cross_entropy(hold(tf, "c", None, "int32"), p, weights=hold(tf, "w"), reduction=reduction)
        return dense, sparse, tf.gradients([dense, sparse], p)

    run_both(program, {"y": A, "p": B, "c": [[1], [2], [0], [1]], "w": W})


def test_wrong_losses():
    run_both(lambda tf: tf.losses.mean_squared_error(None, A), message="must not be None")
    run_both(lambda tf: tf.losses.mean_squared_error(A, A, reduction="x"), message="Invalid Reduction Key")
    run_both(lambda tf: tf.losses.cosine_distance(A, B), message="You must specify argument `axis`")
    run_both(lambda tf: tf.losses.mean_squared_error(hold(tf, "a"), hold(tf, "b"), weights=hold(tf, "w")), {"a": A, "b": B, "w": W[:2]})


# -- metrics ----------------------------------------------------------------------------------------------------------

Y = R.randint(0, 2, (2, 8))
P = R.rand(2, 8).astype(np.float32)
V = R.rand(2, 8).astype(np.float32)
CLASSES = R.randint(0, 3, (2, 8))


def pair(tf, scores="float32", labels="int64", weighted=False, shape=(8,)):
    found = dict(labels=hold(tf, "y", shape, labels), predictions=hold(tf, "p", shape, scores))
    return {**found, "weights": hold(tf, "w", shape)} if weighted else found


METRICS = {
    **{name: (lambda tf, name=name, **k: getattr(tf.metrics, name)(**pair(tf, "int32", **k)), Y) for name in (
        "accuracy", "true_positives", "true_negatives", "false_positives", "false_negatives", "precision", "recall")},
    **{name: (lambda tf, name=name, **k: getattr(tf.metrics, name)(**pair(tf, labels="float32", **k)), P) for name in (
        "mean_absolute_error", "mean_squared_error", "root_mean_squared_error")},
    **{name: (lambda tf, name=name, **k: getattr(tf.metrics, name)(thresholds=[0.2, 0.5], **pair(tf, **k)), P) for name in (
        "true_positives_at_thresholds", "false_negatives_at_thresholds", "precision_at_thresholds", "recall_at_thresholds")},
    "mean_iou": (lambda tf, **k: tf.metrics.mean_iou(num_classes=3, **pair(tf, "int32", **k)), CLASSES),
    "mean_per_class_accuracy": (lambda tf, **k: tf.metrics.mean_per_class_accuracy(num_classes=3, **pair(tf, "int32", **k)), CLASSES),
    "sensitivity_at_specificity": (lambda tf, **k: tf.metrics.sensitivity_at_specificity(specificity=0.4, num_thresholds=9, **pair(tf, **k)), P),
    "specificity_at_sensitivity": (lambda tf, **k: tf.metrics.specificity_at_sensitivity(sensitivity=0.4, num_thresholds=9, **pair(tf, **k)), P),
    **{f"auc {curve} {method}": (lambda tf, c=curve, m=method, **k: tf.metrics.auc(curve=c, summation_method=m, num_thresholds=7, **pair(tf, **k)), P)
       for curve in ("ROC", "PR") for method in ("trapezoidal", "minoring", "majoring", "careful_interpolation")},
}  # fmt: skip


def streamed(tf, build, batches):
    """Values and updates over batches, the variables' names, shapes and values, and the names of the two results."""
    with tf.Graph().as_default() as graph, tf.Session(graph=graph) as session:
        value, update = build(tf)
        session.run([tf.local_variables_initializer(), tf.global_variables_initializer()])
        seen = [session.run(value)]
        for batch in batches:
            feed = {graph.get_tensor_by_name(name + ":0"): array for name, array in batch.items()}
            seen += [session.run(update, feed), session.run(value)]
        variables = tf.get_collection(tf.GraphKeys.METRIC_VARIABLES)
        names = [(v.op.name, v.shape.as_list()) for v in variables]
        return [seen, session.run(variables)], [names, len(tf.local_variables()), value.name, update.name]


def stream_both(build, batches):
    ours, theirs = (streamed(tf, build, batches) for tf in (penstock(), tensorflow()))
    assert ours[1] == theirs[1]
    compare(ours[0], theirs[0])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", METRICS)
def test_metrics(name, weighted):
    build, predictions = METRICS[name]
    labels = CLASSES[::-1] if predictions is CLASSES else Y[::-1]
    batches = [{"y": y, "p": p, **({"w": w} if weighted else {})} for y, p, w in zip(labels, predictions, V)]
    stream_both(lambda tf: build(tf, weighted=weighted), batches)


@pytest.mark.parametrize("name", ["accuracy", "true_positives", "precision", "mean_squared_error", "mean_iou", "auc ROC trapezoidal"])
def test_metric_structure(name):
    same_structure(lambda tf: METRICS[name][0](tf), lambda line: "AssertGuard" not in line)


@pytest.mark.parametrize("weights", [None, [2, 3], [2, 1], []], ids=str)
def test_means(weights):
    def build(tf, function="mean"):
        w = None if weights is None else hold(tf, "w", weights)
        return getattr(tf.metrics, function)(hold(tf, "v", [2, 3]), w)

    batches = [{"v": R.rand(2, 3), **({} if weights is None else {"w": R.rand(*weights)})} for _ in range(2)]
    for function in ("mean", "mean_tensor"):
        same_structure(lambda tf: build(tf, function))
        stream_both(lambda tf: build(tf, function), batches)


SCORES = R.rand(4, 5).astype(np.float32)
RELEVANT = np.array([[0, 1], [2, 3], [1, 1], [4, 0]])


@pytest.mark.parametrize("name", ["recall_at_k", "precision_at_k", "average_precision_at_k"])
@pytest.mark.parametrize("options", [{}, {"class_id": 1}, {"weights": [1.0, 2.0, 0.0, 1.0]}], ids=str)
def test_rankings(name, options):
    if name == "average_precision_at_k" and "class_id" in options:
        pytest.skip("average precision has no class_id")
    build = lambda tf: getattr(tf.metrics, name)(hold(tf, "y", [4, 2], "int64"), hold(tf, "p", [4, 5]), 2, **options)
    stream_both(build, [{"y": RELEVANT, "p": SCORES}, {"y": [[0, 9], [-1, -1], [1, 2], [7, -1]], "p": SCORES}])


@pytest.mark.parametrize("classes", [None, 3])
@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 3.0, 4.0]], ids=str)
def test_confusion_matrix(classes, weights):
    for shape in ([4], [None], None):
        program = lambda tf: tf.confusion_matrix(hold(tf, "y", shape, "int32"), hold(tf, "p", [4], "int32"), num_classes=classes, weights=weights)
        same_structure(program)
        run_both(program, {"y": [0, 1, 2, 1], "p": [2, 1, 2, 0]})
    run_both(lambda tf: tf.confusion_matrix([0, 1], [1, 1], num_classes=1), message="out of bound")


# -- recurrent loops --------------------------------------------------------------------------------------------------


def cell_of(tf, size=3, nested=False):
    class Cell:
        output_size = size
        state_size = (size, size) if nested else size

        def zero_state(self, batch_size, dtype):
            def zeros():
                return tf.zeros([batch_size, size] if isinstance(batch_size, int) else tf.stack([batch_size, size]), dtype)

            return (zeros(), zeros()) if nested else zeros()

        def __call__(self, inputs, state, scope=None):
            with tf.variable_scope(scope or "cell"):
                h = state[0] if nested else state
                w = tf.get_variable("w", [inputs.shape[-1].value + size, size], initializer=tf.constant_initializer(0.1))
                out = tf.tanh(tf.matmul(tf.concat([inputs, h], 1), w))
                return out, ((out, state[1] + 1.0) if nested else out)

    return Cell()


X = R.randn(4, 6, 5).astype(np.float32)
LENGTHS = [3, 1, 0, 2]


def dynamic(shape=(4, None, 5), lengths=False, nested=False, **options):
    def program(tf):
        x = hold(tf, "x", shape)
        seq = hold(tf, "l", [4], "int32") if lengths else None
        out, state = tf.nn.dynamic_rnn(cell_of(tf, nested=nested), x, sequence_length=seq, dtype=tf.float32, **options)
        return out, state, tf.gradients(out, [x, *tf.trainable_variables()])

    return program


def bidirectional(lengths=False):
    def program(tf):
        x = hold(tf, "x", [4, None, 5])
        seq = hold(tf, "l", [4], "int32") if lengths else None
        out, state = tf.nn.bidirectional_dynamic_rnn(cell_of(tf), cell_of(tf, 2), x, sequence_length=seq, dtype=tf.float32)
        return out, state, tf.gradients(out, x)

    return program


def static(lengths=False, both_ways=False, batch=4):
    def program(tf):
        x = hold(tf, "x", [batch, 6, 5])
        options = dict(dtype=tf.float32, sequence_length=hold(tf, "l", [4], "int32") if lengths else None)
        steps = tf.unstack(x, 6, 1)
        if both_ways:
            out, *state = tf.nn.static_bidirectional_rnn(cell_of(tf), cell_of(tf, 2), steps, **options)
        else:
            out, state = tf.nn.static_rnn(cell_of(tf), steps, **options)
        return out, state, tf.gradients(out, x)

    return program


def raw(emit=False):
    def program(tf):
        cell, x, lengths = cell_of(tf), hold(tf, "x", [None, 4, 5]), hold(tf, "l", [4], "int32")
        array = tf.TensorArray(tf.float32, size=tf.shape(x)[0]).unstack(x)

        def loop_fn(time, out, state, loop_state):
            emitted = tf.zeros([3]) if emit and out is None else out * 2 if emit else out
            state = cell.zero_state(4, tf.float32) if out is None else state
            loop_state = tf.constant(0.0) if loop_state is None else loop_state + 1.0
            finished = time >= lengths
            following = tf.cond(tf.reduce_all(finished), lambda: tf.zeros([4, 5]), lambda: array.read(time))
            return finished, following, state, emitted, loop_state

        out, state, count = tf.nn.raw_rnn(cell, loop_fn)
        return out.stack(), state, count

    return program


LOOPS = {
    "dynamic": dynamic(), "unknown batch": dynamic((None, None, 5)), "known": dynamic((4, 6, 5)), "lengths": dynamic(lengths=True),
    "nested": dynamic(lengths=True, nested=True), "scope": dynamic(scope="abc", swap_memory=True, parallel_iterations=3),
    "bidirectional": bidirectional(), "bidirectional lengths": bidirectional(True), "static": static(), "static lengths": static(True),
    "static unknown batch": static(True, batch=None), "static both ways": static(both_ways=True), "static both ways lengths": static(True, True),
    "raw": raw(), "raw emit": raw(True),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOPS)
def test_recurrent_loops(name):
    same_structure(LOOPS[name], lambda line: not line.startswith("gradients"))
    feed = {"x": X.transpose(1, 0, 2) if name.startswith("raw") else X}
    run_both(LOOPS[name], {**feed, **({"l": LENGTHS} if "lengths" in name or name.startswith("raw") or name in ("nested", "static unknown batch") else {})})


def test_wrong_recurrent_loops():
    run_both(lambda tf: tf.nn.dynamic_rnn(3, hold(tf, "x", [4, None, 5]), dtype=tf.float32), message="is not an RNNCell")
    run_both(lambda tf: tf.nn.dynamic_rnn(cell_of(tf), hold(tf, "x", [4, None, 5])), message="dtype")
    run_both(lambda tf: tf.nn.dynamic_rnn(cell_of(tf), hold(tf, "x", [4, None, None]), dtype=tf.float32), message="Input size")
    run_both(lambda tf: tf.nn.static_rnn(cell_of(tf), [], dtype=tf.float32))
    run_both(dynamic((None, None, 5), lengths=True), {"x": X[:2], "l": LENGTHS}, message="Expected shape for Tensor")


# -- images -----------------------------------------------------------------------------------------------------------

IMAGE = R.rand(4, 5, 3).astype(np.float32)
BATCH = R.rand(2, 4, 5, 3).astype(np.float32)
BYTES = (IMAGE * 255).astype(np.uint8)

# name -> (program of an image, the image, whether nodes are compared as well)
IMAGES = {
    "flip": (lambda tf, x: (tf.image.flip_left_right(x), tf.image.flip_up_down(x)), IMAGE, True),
    "flip batch": (lambda tf, x: (tf.image.flip_left_right(x), tf.image.flip_up_down(x)), BATCH, True),
    "random flip": (lambda tf, x: tf.image.random_flip_left_right(x, seed=1), IMAGE, True),
    "random flip batch": (lambda tf, x: tf.image.random_flip_up_down(x, seed=1), BATCH, True),
    "turns": (lambda tf, x: [tf.image.rot90(x, k) for k in range(-1, 5)], IMAGE, False),
    "turns batch": (lambda tf, x: [tf.image.rot90(x, k) for k in range(-1, 5)], BATCH, False),
    "transpose": (lambda tf, x: tf.image.transpose_image(x), BATCH, True),
    "central crop": (lambda tf, x: tf.image.central_crop(x, 0.5), BATCH, True),
    "crop": (lambda tf, x: tf.image.crop_to_bounding_box(x, 1, 1, 2, 3), IMAGE, True),
    "pad": (lambda tf, x: tf.image.pad_to_bounding_box(x, 1, 1, 7, 8), BATCH, True),
    "crop or pad": (lambda tf, x: tf.image.resize_image_with_crop_or_pad(x, 3, 9), IMAGE, True),
    "brightness": (lambda tf, x: (tf.image.adjust_brightness(x, 0.1), tf.image.random_brightness(x, 0.1, seed=1)), BYTES, True),
    "contrast": (lambda tf, x: (tf.image.adjust_contrast(x, 2.0), tf.image.random_contrast(x, 0.1, 0.5, seed=1)), BYTES, True),
    "gamma": (lambda tf, x: tf.image.adjust_gamma(x, 2.0), BYTES, True),
    "grey": (lambda tf, x: tf.image.rgb_to_grayscale(x), BYTES, False),
    "to rgb": (lambda tf, x: tf.image.grayscale_to_rgb(x), BATCH[..., :1], False),
    "hsv": (lambda tf, x: (tf.image.rgb_to_hsv(x), tf.image.hsv_to_rgb(x)), IMAGE, True),
    "hue": (lambda tf, x: (tf.image.adjust_hue(x, 0.1), tf.image.random_hue(x, 0.1, seed=1)), BYTES, True),
    "saturation": (lambda tf, x: (tf.image.adjust_saturation(x, 0.1), tf.image.random_saturation(x, 0.1, 0.5, seed=1)), BYTES, True),
    "yiq": (lambda tf, x: (tf.image.rgb_to_yiq(x), tf.image.yiq_to_rgb(x), tf.image.rgb_to_yuv(x), tf.image.yuv_to_rgb(x)), IMAGE, False),
    "standardization": (lambda tf, x: tf.image.per_image_standardization(x), BYTES, True),
    "variation": (lambda tf, x: tf.image.total_variation(x), BATCH, True),
    "psnr": (lambda tf, x: tf.image.psnr(x, x * 0.5, 1.0), IMAGE, False),
    "gradients": (lambda tf, x: tf.image.image_gradients(x), BATCH, False),
    "sobel": (lambda tf, x: tf.image.sobel_edges(x), BATCH, False),
    "resize": (lambda tf, x: tf.image.resize_images(x, [8, 9]), IMAGE, True),
    "resize bytes": (lambda tf, x: tf.image.resize_images(x, [8, 9], method=1), BYTES, True),
    "resize to the same": (lambda tf, x: tf.image.resize_images(x, [4, 5]), BYTES, True),
    "resize area": (lambda tf, x: tf.image.resize_images(x, [3, 2], method=3, align_corners=True), BATCH, True),
    "resize in proportion": (lambda tf, x: tf.image.resize_images(x, [8, 9], preserve_aspect_ratio=True), IMAGE, False),
    "resize with pad": (lambda tf, x: tf.image.resize_image_with_pad(x, 8, 8), IMAGE, False),
    "as float": (lambda tf, x: tf.image.convert_image_dtype(x, tf.float32), BYTES, True),
    "as bytes": (lambda tf, x: tf.image.convert_image_dtype(x, tf.uint8, saturate=True), IMAGE, True),
    "as int16": (lambda tf, x: tf.image.convert_image_dtype(x, tf.int16), BYTES, True),
}  # fmt: skip


@pytest.mark.parametrize("known", [True, False], ids=["known size", "any size"])
@pytest.mark.parametrize("name", IMAGES)
def test_images(name, known):
    program, value, structure = IMAGES[name]
    shape = value.shape if known else (*(None,) * (value.ndim - 1), value.shape[-1])
    build = lambda tf: program(tf, tf.placeholder(tf.as_dtype(value.dtype), shape, name="x"))
    if structure and known:
        same_structure(build)
    run_both(build, {"x": value})


def test_structural_similarity():
    a, b = R.rand(1, 192, 180, 3).astype(np.float32), R.rand(1, 192, 180, 3).astype(np.float32)
    run_both(lambda tf: (tf.image.ssim(a[:, :16, :16], b[:, :16, :16], 1.0), tf.image.ssim_multiscale(a, a * 0.9 + b * 0.1, 1.0)), rtol=1e-4, atol=1e-5)
    run_both(lambda tf: tf.image.ssim((a[:, :16, :16] * 255).astype("u1"), (b[:, :16, :16] * 255).astype("u1"), 255), rtol=1e-4, atol=1e-5)


def test_boxes():
    boxes, scores = R.rand(10, 4).astype(np.float32), R.rand(10).astype(np.float32)
    for name in ("non_max_suppression", "non_max_suppression_with_scores"):
        program = lambda tf: getattr(tf.image, name)(boxes, scores, 4, iou_threshold=0.2)
        same_structure(program)
        run_both(program)
    several, theirs = np.sort(R.rand(2, 3, 60, 4) * 3, -1)[..., [0, 2, 1, 3]].astype(np.float32), np.round(R.rand(2, 3, 60) * 9).astype(np.float32) / 9
    for given in ({}, dict(tile_size=16), dict(score_threshold=0.3, iou_threshold=0.1, tile_size=7), dict(canonicalized_coordinates=True, sorted_input=True)):
        run_both(lambda tf: tf.image.non_max_suppression_padded(tf.constant(several), tf.constant(theirs), 40, pad_to_max_output_size=True, **given))
        run_both(lambda tf: tf.image.non_max_suppression_padded(tf.constant(several[0, 0]), tf.constant(theirs[0, 0]), 70, **given))
    run_both(lambda tf: tf.image.non_max_suppression_with_scores(boxes, scores, 8, iou_threshold=1.0, soft_nms_sigma=0.5))
    run_both(lambda tf: tf.image.draw_bounding_boxes(BATCH, boxes[None, :5].repeat(2, 0)))

    def crops(tf):
        x, b = hold(tf, "x", [2, 4, 5, 3]), hold(tf, "b", [2, 4])
        y = tf.image.crop_and_resize(x, b, [0, 1], [3, 4])
        return y, tf.gradients(y * y, [x, b])

    run_both(crops, {"x": BATCH, "b": [[0.1, 0.05, 0.93, 0.97], [0.2, 0.3, 0.6, 0.9]]})


@pytest.mark.parametrize("program", [
    lambda tf: tf.image.crop_to_bounding_box(IMAGE, -1, 2, 2, 2), lambda tf: tf.image.pad_to_bounding_box(IMAGE, 1, 2, 2, 2),
    lambda tf: tf.image.central_crop(IMAGE, 1.2), lambda tf: tf.image.flip_left_right(IMAGE[0]), lambda tf: tf.image.resize_images(IMAGE, [2, 2, 2]),
    lambda tf: tf.image.resize_images(IMAGE, [2, 2], method=9), lambda tf: tf.image.random_brightness(IMAGE, -1.0),
    lambda tf: tf.image.grayscale_to_rgb(tf.constant(IMAGE)), lambda tf: tf.image.rgb_to_hsv(IMAGE[..., :2]),
])  # fmt: skip
def test_wrong_images(program):
    assert isinstance(run_both(program), ValueError)


# -- sorting, templates -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "int8", "int64"])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_sorting(dtype, axis):
    values = R.randint(0, 120, (3, 4)).astype(dtype)
    program = lambda tf: (lambda x: (tf.sort(x, axis), tf.sort(x, axis, "DESCENDING"), tf.argsort(x, axis)))(hold(tf, "x", [3, 4], dtype))
    same_structure(program)
    run_both(program, {"x": values})
    run_both(lambda tf: tf.argsort(hold(tf, "x", None, dtype), axis, stable=True), {"x": values})


@pytest.mark.parametrize("now", [False, True])
def test_templates(now):
    def program(tf):
        t = tf.make_template("scale", lambda x, y: x * tf.get_variable("w", [], initializer=tf.ones_initializer()) + y, create_scope_now_=now, y=3.0)
        with tf.name_scope("n"):
            a = t(tf.constant(1.0))
        with tf.variable_scope("o"):
            b = t(2.0)
        u = tf.make_template("scale", lambda x: x * tf.get_variable("w", [], initializer=tf.ones_initializer()), create_scope_now_=now)
        return a, b, u(1.0), [v.name for v in t.variables] and tf.constant(t.variable_scope_name)

    same_structure(program)
    run_both(program)


# -- flags, files, config, specs: what expressions give --------------------------------------------------------------


def answer(expression, names):
    try:
        return repr(eval(expression, {"os": os, "np": np}, names))
    except Exception as error:
        return type(error).__name__


def test_flags():
    def parsed(flags, *arguments, known_only=False):
        values = flags.FlagValues()
        flags.DEFINE_string("s", "d", "", flag_values=values)
        flags.DEFINE_integer("i", 3, "", lower_bound=0, flag_values=values)
        flags.DEFINE_float("f", None, "", flag_values=values)
        flags.DEFINE_bool("b", False, "", flag_values=values)
        flags.DEFINE_enum("e", "x", ["x", "y"], "", flag_values=values)
        flags.DEFINE_list("l", "a,b", "", flag_values=values)
        flags.DEFINE_multi_string("m", None, "", flag_values=values)
        flags.DEFINE_spaceseplist("p", "a b", "", flag_values=values)
        try:
            return values(["prog", *arguments], known_only=known_only), values.flag_values_dict(), values.flags_into_string()
        except Exception as error:
            return type(error).__name__, str(error)

    lines = [
        [], ["--s=1"], ["-s", "1"], ["--i=0x10"], ["--i=-1"], ["--i=a"], ["--f=1e3"], ["--b"], ["--nob"], ["--b=maybe"], ["--e=z"], ["--l=1,2"],
        ["--l="], ["--m=1", "--m=2"], ["--p=x y"], ["x", "--s=1", "y"], ["--s=1", "--", "--i=3"], ["--zz"], ["--s"], ["-"], ["--undefok=zz", "--zz=1"],
    ]  # fmt: skip
    for line in lines:
        for known_only in (False, True):
            results = [parsed(tf.flags, *line, known_only=known_only) for tf in (penstock(), tensorflow())]
            assert results[0] == results[1], line


def test_files(tmp_path):
    expressions = [
        "g.Exists(d)", "g.Exists(d + '/no')", "g.Remove(d + '/no')", "g.Remove(d + '/sub')", "g.MkDir(d + '/x/y')", "g.MkDir(d + '/sub')",
        "g.MakeDirs(d + '/p/q')", "g.MakeDirs(d + '/a.txt/z')", "sorted(g.Glob(d + '/*'))", "g.Glob([d + '/a*', d + '/b*'])", "g.Glob(d + '/*/q')",
        "g.Copy(d + '/a.txt', d + '/b.txt')", "g.Copy(d + '/a.txt', d + '/b.txt', overwrite=True)", "g.Copy(d + '/no', d + '/z')",
        "g.Rename(d + '/b.txt', d + '/c.txt')", "g.Rename(d + '/no', d + '/z')", "sorted(g.ListDirectory(d))", "g.ListDirectory(d + '/a.txt')",
        "g.Stat(d + '/a.txt').length", "g.Stat(d + '/no')", "[(p, sorted(a), sorted(b)) for p, a, b in g.Walk(d + '/p')]", "g.DeleteRecursively(d + '/no')",
        "g.DeleteRecursively(d + '/p')", "g.GFile(d + '/no').read()", "g.GFile(d + '/a.txt').read()", "g.GFile(d + '/a.txt', 'rb').read(3)",
        "g.GFile(d + '/a.txt').readlines()", "list(g.GFile(d + '/a.txt', 'rb'))", "g.GFile(d + '/a.txt').size()", "g.GFile(d + '/a.txt').write('x')",
        "g.GFile(d + '/q', 'w').read()", "g.GFile(d + '/a.txt', 'z')", "g.GFile(d).read()", "g.GFile(d + '/n/o', 'w').write('x')",
        "g.GFile(d + '/w', 'w').write(3)", "g.GFile(d + '/a.txt').seek(100)", "g.GFile(d + '/a.txt').seek(-1)", "g.Exists('foo://x')",
    ]  # fmt: skip
    answers = []
    for name, tf in (("ours", penstock()), ("theirs", tensorflow())):
        folder = tmp_path / name
        (folder / "sub").mkdir(parents=True)
        (folder / "a.txt").write_text("héllo\nline2\n")
        (folder / "b.txt").write_text("x")
        names = {"g": tf.gfile, "d": str(folder)}
        answers.append([answer(e, names).replace(str(folder), "") for e in expressions])
    for expression, ours, theirs in zip(expressions, *answers):
        assert ours == theirs, expression


def test_specs():
    expressions = [
        "S([2, None], tf.float32, 'n')", "S(None)", "S([2], 'int32') == S([2], tf.int32)", "S([2]) == S([2], name='n')", "S([2, None]).is_compatible_with(S([2, 3]))",
        "S([2, None]).is_compatible_with(S([3, 3]))", "S([2, 3]).is_subtype_of(S([None, 3]))", "S([2]).most_specific_compatible_type(S([3]))",
        "S([2]).most_specific_compatible_type(S([2], tf.int32))", "S('x')", "tf.SparseTensorSpec([2, 3], tf.int32)", "tf.IndexedSlicesSpec([2, 3], tf.float64)",
        "tf.TensorArraySpec([2], tf.int32)", "tf.TypeSpec()", "tf.compat.as_bytes(3)", "tf.compat.as_text(b'a')", "tf.compat.as_str_any(3)",
    ]  # fmt: skip
    for expression in expressions:
        ours, theirs = (answer(expression, {"tf": tf, "S": tf.TensorSpec}) for tf in (penstock(), tensorflow()))
        assert ours == theirs, expression
