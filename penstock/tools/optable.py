"""The table of ops: what each one has. `docs/ops.md` is made by `penstock ops --markdown` and checked fresh by a test."""

from __future__ import annotations

from penstock.graph.opdef import MISSING, OPS, OpDef
from penstock.ops.declare import NOT_DIFFERENTIABLE, unknown


def _kernel(op: OpDef) -> str:
    return "asynchronous" if op.async_kernel is not None else "NumPy" if op.kernel is not None else "executor"


def _gradient(op: OpDef) -> str:
    if op.gradient is MISSING:
        return ""
    return "none by nature" if op.gradient is NOT_DIFFERENTIABLE else "yes"


def _family(op: OpDef) -> str:
    return op.where.partition(":")[0].removeprefix("penstock.")


def as_text() -> str:
    """One line an op."""
    return "".join(f"{name:<44}{_kernel(OPS[name]):<14}{_gradient(OPS[name])}\n" for name in sorted(OPS))


def as_markdown() -> str:
    """The page docs/ops.md."""
    import penstock.engines.xla.rules  # noqa: F401  (registers them; JAX is not needed for that)
    from penstock.engines.xla.rule import find_rule

    families: dict[str, list[OpDef]] = {}
    for name in sorted(OPS):
        families.setdefault(_family(OPS[name]), []).append(OPS[name])
    sampled = sum(1 for op in OPS.values() if op.samples)
    lines = [
        "# Ops",
        "",
        f"{len(OPS)} ops, {sampled} of them with samples. Samples are run by `tests/ops/test_samples.py` and compared with TensorFlow's own kernels by",
        "`conformance/test_ops.py`; signatures are compared with TensorFlow's registry. XLA: a rule that the ops' samples test,",
        "so that hot regions and GPUs can compute the op. This page is made by `penstock ops --markdown`.",
        "",
    ]
    for family in sorted(families):
        lines += [f"## {family}", "", "| op | shape rule | gradient | kernel | XLA | samples |", "|---|---|---|---|---|---|"]
        for op in families[family]:
            shape = "" if op.shape_rule is None else "unknown" if op.shape_rule is unknown else "yes"
            xla = "" if find_rule(op) is None else "yes"
            lines.append(f"| {op.name} | {shape} | {_gradient(op)} | {_kernel(op)} | {xla} | {'yes' if op.samples else ''} |")
        lines.append("")
    return "\n".join(lines)
