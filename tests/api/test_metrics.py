"""tf.metrics against NumPy over several batches, and the variables and collections that they make."""

import numpy as np
import pytest

import penstock as tf

R = np.random.RandomState(0)
LABELS = R.randint(0, 2, (3, 8))
SCORES = R.rand(3, 8).astype(np.float32)
WEIGHTS = R.rand(3, 8).astype(np.float32)


def stream(build, batches):
    """(value before, updates, value after) of a metric over batches, which are dicts from placeholder names."""
    value, update = build()
    graph = tf.get_default_graph()
    with tf.Session() as s:
        s.run(tf.local_variables_initializer())
        first = s.run(value)
        updates = [s.run(update, {graph.get_tensor_by_name(k + ":0"): v for k, v in batch.items()}) for batch in batches]
        return first, updates, s.run(value)


def holders(kind=tf.int64, scores=tf.float32, weights=False):
    found = dict(labels=tf.placeholder(kind, [8], "y"), predictions=tf.placeholder(scores, [8], "p"))
    return {**found, "weights": tf.placeholder(tf.float32, [8], "w")} if weights else found


BATCHES = [{"y": y, "p": p} for y, p in zip(LABELS, SCORES)]
WEIGHTED = [{"y": y, "p": p, "w": w} for y, p, w in zip(LABELS, SCORES, WEIGHTS)]


def test_mean_and_its_variables():
    before, updates, after = stream(lambda: tf.metrics.mean(tf.placeholder(tf.float32, [8], "p")), [{"p": p} for p in SCORES])
    assert before == 0.0
    np.testing.assert_allclose(updates[0], SCORES[0].mean(), rtol=1e-5)
    np.testing.assert_allclose(after, SCORES.mean(), rtol=1e-5)
    assert [v.op.name for v in tf.local_variables()] == ["mean/total", "mean/count"]
    assert tf.get_collection(tf.GraphKeys.METRIC_VARIABLES) == tf.local_variables()
    assert not tf.global_variables() and not tf.trainable_variables()


def test_weighted_mean_and_mean_tensor():
    def build():
        return tf.metrics.mean(tf.placeholder(tf.float32, [8], "p"), tf.placeholder(tf.float32, [8], "w"))

    _, _, after = stream(build, [{"p": p, "w": w} for p, w in zip(SCORES, WEIGHTS)])
    np.testing.assert_allclose(after, (SCORES * WEIGHTS).sum() / WEIGHTS.sum(), rtol=1e-5)
    _, _, each = stream(lambda: tf.metrics.mean_tensor(tf.placeholder(tf.float32, [8], "q")), [{"q": p} for p in SCORES])
    np.testing.assert_allclose(each, SCORES.mean(0), rtol=1e-5)


@pytest.mark.parametrize("name, expected", [
    ("mean_absolute_error", np.abs(SCORES - LABELS).mean()),
    ("mean_squared_error", ((SCORES - LABELS) ** 2).mean()),
    ("root_mean_squared_error", np.sqrt(((SCORES - LABELS) ** 2).mean())),
])
def test_errors(name, expected):
    _, updates, after = stream(lambda: getattr(tf.metrics, name)(**holders(tf.float32)), BATCHES)
    np.testing.assert_allclose([updates[-1], after], expected, rtol=1e-5)


def test_accuracy_takes_a_last_dimension_of_one():
    labels = tf.placeholder(tf.int64, [None], "y")
    predictions = tf.placeholder(tf.int32, [None, 1], "p")
    _, _, after = stream(lambda: tf.metrics.accuracy(labels, predictions, name="acc"), [{"y": [1, 2, 3], "p": [[1], [0], [3]]}])
    assert after == pytest.approx(2 / 3)
    assert [v.op.name for v in tf.local_variables()] == ["acc/total", "acc/count"]


def test_counts_precision_and_recall():
    guess = SCORES > 0.5
    truth = LABELS.astype(bool)
    cells = {
        "true_positives": truth & guess, "true_negatives": ~truth & ~guess, "false_positives": ~truth & guess, "false_negatives": truth & ~guess,
    }
    batches = [{"y": y, "p": g, "w": w} for y, g, w in zip(LABELS, guess, WEIGHTS)]
    values = {}
    for name, hits in cells.items():
        with tf.Graph().as_default():
            _, _, values[name] = stream(lambda: getattr(tf.metrics, name)(**holders(scores=tf.bool, weights=True)), batches)
        np.testing.assert_allclose(values[name], (hits * WEIGHTS).sum(), rtol=1e-5)
    with tf.Graph().as_default():
        _, _, precision = stream(lambda: tf.metrics.precision(**holders(scores=tf.bool, weights=True)), batches)
        names = [v.op.name for v in tf.local_variables()]
    assert names == ["precision/true_positives/count", "precision/false_positives/count"]
    with tf.Graph().as_default():
        _, _, recall = stream(lambda: tf.metrics.recall(**holders(scores=tf.bool, weights=True)), batches)
    hits = values["true_positives"]
    np.testing.assert_allclose(precision, hits / (hits + values["false_positives"]), rtol=1e-5)
    np.testing.assert_allclose(recall, hits / (hits + values["false_negatives"]), rtol=1e-5)


def test_precision_of_nothing_is_zero():
    before, _, after = stream(lambda: tf.metrics.precision([True, False], [False, False]), [{}])
    assert before == after == 0.0


def test_at_thresholds():
    _, _, after = stream(lambda: tf.metrics.recall_at_thresholds(thresholds=[0.2, 0.7], **holders()), BATCHES)
    expected = [((SCORES > t) & (LABELS == 1)).sum() / (LABELS == 1).sum() for t in (0.2, 0.7)]
    np.testing.assert_allclose(after, expected, rtol=1e-4)


def test_auc_is_near_the_exact_one():
    _, _, after = stream(lambda: tf.metrics.auc(num_thresholds=2000, **holders()), BATCHES)
    positive, negative = SCORES[LABELS == 1], SCORES[LABELS == 0]
    exact = (positive[:, None] > negative[None, :]).mean()
    assert after == pytest.approx(exact, abs=2e-3)
    assert [v.op.name for v in tf.local_variables()] == ["auc/" + n for n in ("true_positives", "false_negatives", "true_negatives", "false_positives")]
    value, update = tf.metrics.auc(**holders())
    with tf.Session() as s, pytest.raises(tf.errors.InvalidArgumentError, match=r"predictions must be in \[0, 1\]"):
        s.run(tf.local_variables_initializer())
        s.run(update, {"y_1:0": LABELS[0], "p_1:0": SCORES[0] + 1})


def test_mean_iou_and_per_class_accuracy():
    y, p = R.randint(0, 3, (2, 8)), R.randint(0, 3, (2, 8))
    batches = [{"y": a, "p": b} for a, b in zip(y, p)]
    _, updates, after = stream(lambda: tf.metrics.mean_iou(num_classes=3, **holders(scores=tf.int32)), batches)
    matrix = np.zeros((3, 3))
    np.add.at(matrix, (y.ravel(), p.ravel()), 1)
    np.testing.assert_array_equal(updates[-1], matrix)
    union = matrix.sum(0) + matrix.sum(1) - np.diag(matrix)
    np.testing.assert_allclose(after, (np.diag(matrix) / union).mean(), rtol=1e-5)
    with tf.Graph().as_default():
        _, _, after = stream(lambda: tf.metrics.mean_per_class_accuracy(num_classes=3, **holders(scores=tf.int32)), batches)
    np.testing.assert_allclose(after, (np.diag(matrix) / matrix.sum(1)).mean(), rtol=1e-5)


def test_rankings():
    scores = np.array([[0.1, 0.9, 0.5, 0.3], [0.8, 0.1, 0.2, 0.7]], np.float32)
    labels = np.array([[1, 3], [2, 0]])
    def build(f):
        return lambda: f(tf.placeholder(tf.int64, [2, 2], "y"), tf.placeholder(tf.float32, [2, 4], "p"), 2)

    batch = [{"y": labels, "p": scores}]
    _, _, precision = stream(build(tf.metrics.precision_at_k), batch)
    assert [v.op.name for v in tf.local_variables()] == ["precision_at_2/true_positive_at_2", "precision_at_2/false_positive_at_2"]
    with tf.Graph().as_default():
        _, _, recall = stream(build(tf.metrics.recall_at_k), batch)
    with tf.Graph().as_default():
        _, _, average = stream(build(tf.metrics.average_precision_at_k), batch)
    # Top two: {1, 2} of labels {1, 3}, then {0, 3} of labels {2, 0}: the first of each is right.
    assert precision == 0.5 and recall == 0.5 and average == 0.5


def test_collections():
    tf.metrics.mean([1.0], metrics_collections=["m"], updates_collections="u")
    assert [t.op.name for t in tf.get_collection("m")] == ["mean/value"]
    assert [t.op.name for t in tf.get_collection("u")] == ["mean/update_op"]


def test_confusion_matrix():
    with tf.Session() as s:
        plain, weighted = s.run([tf.confusion_matrix([1, 2, 2], [1, 1, 2]), tf.math.confusion_matrix([0, 1], [1, 1], weights=[0.5, 2.0], dtype=tf.float32)])
        np.testing.assert_array_equal(plain, [[0, 0, 0], [0, 1, 0], [0, 1, 1]])
        np.testing.assert_array_equal(weighted, [[0, 0.5], [0, 2]])
        labels = tf.placeholder(tf.int32, [None])
        bounded = tf.confusion_matrix(labels, [0, 1], num_classes=2)
        for bad, text in (([0, 2], "`labels` out of bound"), ([0, -1], "`labels` contains negative values")):
            with pytest.raises(tf.errors.InvalidArgumentError, match=text):
                s.run(bounded, {labels: bad})
