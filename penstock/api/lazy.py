"""The public names whose modules are imported on first use: companions that a program may or may not touch.

A line says which module of this folder holds which public names; `name=attribute` where the two differ. Modules listed here
do not use `@export`, and `import penstock` does not import them.
"""

from __future__ import annotations

from penstock.api.export import export_lazy

LAZY: dict[str, str] = {
    "confusion": "confusion_matrix math.confusion_matrix",
    "metrics.means": """
        metrics.mean metrics.mean_tensor metrics.accuracy metrics.mean_absolute_error metrics.mean_squared_error
        metrics.root_mean_squared_error metrics.mean_relative_error metrics.mean_cosine_distance metrics.percentage_below
        metrics.mean_iou metrics.mean_per_class_accuracy""",
    "metrics.counts": """
        metrics.true_positives metrics.true_negatives metrics.false_positives metrics.false_negatives metrics.precision
        metrics.recall""",
    "metrics.thresholds": """
        metrics.true_positives_at_thresholds metrics.true_negatives_at_thresholds metrics.false_positives_at_thresholds
        metrics.false_negatives_at_thresholds metrics.precision_at_thresholds metrics.recall_at_thresholds metrics.auc
        metrics.sensitivity_at_specificity metrics.specificity_at_sensitivity""",
    "metrics.ranking": """
        metrics.recall_at_top_k metrics.precision_at_top_k metrics.recall_at_k metrics.precision_at_k
        metrics.sparse_precision_at_k metrics.average_precision_at_k metrics.sparse_average_precision_at_k""",
}

#: Modules and packages of this folder that `import penstock` leaves alone.
MODULES = frozenset(f"penstock.api.{part}" for module in LAZY for part in (module, module.partition(".")[0]))

for _module, _names in LAZY.items():
    for _entry in _names.split():
        _public, _, _attribute = _entry.partition("=")
        export_lazy(_public, f"penstock.api.{_module}:{_attribute or _public.rpartition('.')[2]}")
