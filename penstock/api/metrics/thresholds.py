"""Metrics of a probability: counts, precision and recall at thresholds, the area under a curve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock import dtypes
from penstock.api import array_ops, math_ops, math_reduce
from penstock.api.array_indexing import where
from penstock.api.broadcast_weights import broadcast_weights
from penstock.api.check_ops import assert_greater_equal, assert_less_equal
from penstock.api.metrics.parts import EPSILON, collect, metric_variable, ratio
from penstock.api.squeezable import remove_for_metric
from penstock.api.state_ops import assign_add
from penstock.api.variable_scope import variable_scope
from penstock.graph.constant import constant
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw

_ALL = ("tp", "fn", "tn", "fp")
_VARIABLE = {"tp": "true_positives", "fn": "false_negatives", "tn": "true_negatives", "fp": "false_positives"}


def _confusion_at(
    labels: Any, predictions: Any, thresholds: list[float], weights: Any, includes: tuple[str, ...] = _ALL
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Variables and update ops of the counts in `includes`, each with one element per threshold."""
    zero_or_more = assert_greater_equal(predictions, math_ops.cast(0.0, dtype=predictions.dtype), message="predictions must be in [0, 1]")
    one_or_less = assert_less_equal(predictions, math_ops.cast(1.0, dtype=predictions.dtype), message="predictions must be in [0, 1]")
    with get_default_graph().control_dependencies([zero_or_more, one_or_less]):
        predictions, labels, weights = remove_for_metric(
            math_ops.cast(predictions, dtypes.float32), math_ops.cast(labels, dtypes.bool), weights
        )
    predictions.shape.assert_is_compatible_with(labels.shape)
    number = len(thresholds)
    flat = array_ops.reshape(predictions, [-1, 1])
    flat_labels = array_ops.reshape(math_ops.cast(labels, dtypes.bool), [1, -1])
    elements = flat.dims[0] if flat.dims is not None and flat.dims[0] is not None else array_ops.shape(flat)[0]
    tiled = array_ops.tile(array_ops.expand_dims(constant(thresholds), [1]), array_ops.stack([1, elements]))
    positive = raw.Greater(array_ops.tile(array_ops.transpose(flat), [number, 1]), tiled)
    negative = raw.LogicalNot(positive) if {"fn", "tn"} & {*includes} else None
    is_true = array_ops.tile(flat_labels, [number, 1])
    is_false = raw.LogicalNot(is_true) if {"fp", "tn"} & {*includes} else None
    spread = None
    if weights is not None:
        weights = broadcast_weights(math_ops.cast(weights, dtypes.float32), predictions)
        spread = array_ops.tile(array_ops.reshape(weights, [1, -1]), [number, 1])
    cells = {"tp": (is_true, positive), "fn": (is_true, negative), "tn": (is_false, negative), "fp": (is_false, positive)}
    values: dict[str, Any] = {}
    updates: dict[str, Tensor] = {}
    for key in _ALL:
        if key not in includes:
            continue
        count = metric_variable([number], dtypes.float32, name=_VARIABLE[key])
        hits = math_ops.cast(raw.LogicalAnd(*cells[key]), dtypes.float32)
        if spread is not None:
            hits = hits * spread
        updates[key] = assign_add(count, math_reduce.reduce_sum(hits, 1))
        values[key] = count
    return values, updates


def _even_thresholds(number: int) -> list[float]:
    """`number` thresholds over [0, 1], the outer ones a little outside of it."""
    inner = [(i + 1) * 1.0 / (number - 1) for i in range(number - 2)]
    return [0.0 - EPSILON, *inner, 1.0 + EPSILON]


def _cells_at(key: str) -> Any:
    default = _VARIABLE[key]

    def function(
        labels: Any, predictions: Any, thresholds: Any, weights: Any = None, metrics_collections: Any = None,
        updates_collections: Any = None, name: str | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        with variable_scope(name, default, (predictions, labels, weights)):
            values, updates = _confusion_at(labels, predictions, thresholds, weights, includes=(key,))
            value = array_ops.identity(values[key])
            return collect(value, updates[key], metrics_collections, updates_collections)

    function.__name__ = function.__qualname__ = default + "_at_thresholds"
    function.__doc__ = f"The number of {default.replace('_', ' ')} if predictions above a threshold count as true; one for each threshold."
    return function


true_positives_at_thresholds = _cells_at("tp")
false_negatives_at_thresholds = _cells_at("fn")
true_negatives_at_thresholds = _cells_at("tn")
false_positives_at_thresholds = _cells_at("fp")


def precision_at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The precision if predictions above a threshold count as true; one for each threshold."""
    with variable_scope(name, "precision_at_thresholds", (predictions, labels, weights)):
        values, updates = _confusion_at(labels, predictions, thresholds, weights, includes=("tp", "fp"))

        def precision(tp: Any, fp: Any, name: str) -> Tensor:
            return math_ops.divide(tp, EPSILON + tp + fp, name="precision_" + name)

        value = precision(values["tp"], values["fp"], "value")
        update_op = precision(updates["tp"], updates["fp"], "update_op")
        return collect(value, update_op, metrics_collections, updates_collections)


def recall_at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The recall if predictions above a threshold count as true; one for each threshold."""
    with variable_scope(name, "recall_at_thresholds", (predictions, labels, weights)):
        values, updates = _confusion_at(labels, predictions, thresholds, weights, includes=("tp", "fn"))

        def recall(tp: Any, fn: Any, name: str) -> Tensor:
            return math_ops.divide(tp, EPSILON + tp + fn, name="recall_" + name)

        value = recall(values["tp"], values["fn"], "value")
        update_op = recall(updates["tp"], updates["fn"], "update_op")
        return collect(value, update_op, metrics_collections, updates_collections)


# -- areas ------------------------------------------------------------------------------------------------------------


def auc(
    labels: Any, predictions: Any, weights: Any = None, num_thresholds: int = 200, metrics_collections: Any = None,
    updates_collections: Any = None, curve: str = "ROC", name: str | None = None, summation_method: str = "trapezoidal",
    thresholds: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The area under the ROC curve, or the precision-recall curve (`curve="PR"`), from counts at thresholds.

    `summation_method` is "trapezoidal", "minoring", "majoring" or "careful_interpolation" (for ROC the same as trapezoidal).
    `thresholds`, numbers in [0, 1], replace the `num_thresholds` even ones.
    """
    with variable_scope(name, "auc", (labels, predictions, weights)):
        if curve not in ("ROC", "PR"):
            raise ValueError(f"Curve must be either ROC or PR. Curve {curve} is unknown.")
        if thresholds is None:
            thresholds = _even_thresholds(num_thresholds)
        else:
            thresholds = [-EPSILON, *thresholds, 1 + EPSILON]
        number = len(thresholds)
        values, updates = _confusion_at(labels, predictions, thresholds, weights)
        epsilon = 1.0e-6

        def area(tp: Any, fn: Any, tn: Any, fp: Any, name: str) -> Tensor:
            if summation_method == "careful_interpolation" and curve == "PR":
                return _interpolated_area(tp, fp, fn, number)
            recall = math_ops.divide(tp + epsilon, tp + fn + epsilon)
            if curve == "ROC":
                x, y = math_ops.divide(fp, fp + tn + epsilon), recall
            else:
                x, y = recall, math_ops.divide(tp + epsilon, tp + fp + epsilon)
            width = x[: number - 1] - x[1:]
            if summation_method in ("trapezoidal", "careful_interpolation"):
                height = (y[: number - 1] + y[1:]) / 2.0
            elif summation_method == "minoring":
                height = raw.Minimum(y[: number - 1], y[1:])
            elif summation_method == "majoring":
                height = raw.Maximum(y[: number - 1], y[1:])
            else:
                raise ValueError(f"Invalid summation_method: {summation_method}")
            return math_reduce.reduce_sum(raw.Mul(width, height), name=name)

        value = area(*(values[key] for key in _ALL), name="value")
        update_op = area(*(updates[key] for key in _ALL), name="update_op")
        return collect(value, update_op, metrics_collections, updates_collections)


def _interpolated_area(tp: Any, fp: Any, fn: Any, number: int) -> Tensor:
    """Davis and Goadrich: between thresholds, true positives grow linearly with positives, so precision does not."""
    step = tp[: number - 1] - tp[1:]
    positives = tp + fp
    slope = ratio(step, positives[: number - 1] - positives[1:], name="prec_slope")
    intercept = tp[1:] - raw.Mul(slope, positives[1:])
    both = raw.LogicalAnd(positives[: number - 1] > 0, positives[1:] > 0)
    growth = where(both, ratio(positives[: number - 1], positives[1:], name="recall_relative_ratio"), array_ops.ones_like(positives[1:]))
    return math_reduce.reduce_sum(
        ratio(slope * (step + intercept * raw.Log(growth)), tp[1:] + fn[1:], name="pr_auc_increment"), name="interpolate_pr_auc"
    )


# -- one given the other ----------------------------------------------------------------------------------------------


def _at(
    default: str, labels: Any, predictions: Any, weights: Any, num_thresholds: int, metrics_collections: Any, updates_collections: Any,
    name: str | None, compute: Callable[..., Tensor],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    with variable_scope(name, default, (predictions, labels, weights)):
        values, updates = _confusion_at(labels, predictions, _even_thresholds(num_thresholds), weights)
        value = compute(*(values[key] for key in ("tp", "tn", "fp", "fn")), "value")
        update_op = compute(*(updates[key] for key in ("tp", "tn", "fp", "fn")), "update_op")
        return collect(value, update_op, metrics_collections, updates_collections)


def sensitivity_at_specificity(
    labels: Any, predictions: Any, specificity: float, weights: Any = None, num_thresholds: int = 200, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The true positive rate at the threshold whose true negative rate is nearest to `specificity`."""
    if specificity < 0 or specificity > 1:
        raise ValueError(f"`specificity` must be in the range [0, 1]. Currently, `specificity` is {specificity}.")

    def compute(tp: Any, tn: Any, fp: Any, fn: Any, name: str) -> Tensor:
        specificities = math_ops.divide(tn, tn + fp + EPSILON)
        index = math_ops.cast(math_reduce.argmin(math_ops.abs(specificities - specificity), 0), dtypes.int32)
        return math_ops.divide(tp[index], tp[index] + fn[index] + EPSILON, name)

    return _at("sensitivity_at_specificity", labels, predictions, weights, num_thresholds, metrics_collections, updates_collections, name, compute)


def specificity_at_sensitivity(
    labels: Any, predictions: Any, sensitivity: float, weights: Any = None, num_thresholds: int = 200, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The true negative rate at the last threshold whose true positive rate is nearest to `sensitivity`."""
    if sensitivity < 0 or sensitivity > 1:
        raise ValueError(f"`sensitivity` must be in the range [0, 1]. Currently, `sensitivity` is {sensitivity}.")

    def compute(tp: Any, tn: Any, fp: Any, fn: Any, name: str) -> Tensor:
        sensitivities = math_ops.divide(tp, tp + fn + EPSILON)
        least = math_reduce.reduce_min(math_ops.abs(sensitivities - sensitivity))
        nearest = math_ops.cast(raw.Equal(math_ops.abs(sensitivities - sensitivity), least), dtypes.int64)
        index = math_ops.cast(math_reduce.argmax(math_reduce.cumsum(nearest), 0), dtypes.int32)
        # The running count is largest at the last of the nearest, and argmax takes its first place.
        return math_ops.divide(tn[index], tn[index] + fp[index] + EPSILON, name)

    return _at("specificity_at_sensitivity", labels, predictions, weights, num_thresholds, metrics_collections, updates_collections, name, compute)
