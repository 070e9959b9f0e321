"""The ways of running a graph that `agree` compares with the plain one: environment variables and module constants."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

PLAIN = {"PENSTOCK_REGIONS": "0", "PENSTOCK_ENGINES": "numpy", "PENSTOCK_XLA": "0"}


class Mode(NamedTuple):
    """How to run: `env` on top of PLAIN, constants to set while it runs, whether bits must be equal."""

    env: dict[str, str]
    exact: bool = True
    constants: dict[str, Any] = {}
    deadline: bool = False
    how: str = "run"  # run, callable, threads
    silent: frozenset[str] = frozenset()  # types of nodes that do not report bad data


_ELEMENTWISE = "penstock.engines.python.elementwise"
_COMPILED = "penstock.runtime.executor.compiled"
_ONEDNN = "penstock.engines.onednn.binding"
_EXECUTOR = "penstock.runtime.executor"
_EAGER = {"PENSTOCK_REGIONS": "eager"}


def _named(values: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Constants by the paths that `setting` takes."""
    return {f"penstock.{module}.{name}": value for module, names in values.items() for name, value in names.items()}


# Sizes from which on something is worth it, as if every array were large: small programs take the ways of big ones.
_SMALL = _named({
    "engines.python.elementwise": {"MIN_SIZE": 2, "PARALLEL": 64, "CACHE": 256, "COLUMNS": (1, 1 << 14)},
    "engines.python.tiles": {"SMALLEST": 3, "LARGEST": 8},
    "engines.python.reductions": {"LARGE": 4, "PIECE": 5, "NARROWEST": 1},
    "engines.python.products": {"SMALLEST": 1, "SMALLEST_MOVED": 1, "SMALLEST_TOTAL": 1, "FEWEST": 2, "WORTH": 1, "BATCH": 8},
    "engines.python.pieces": {"SHORT_SUM": 8, "FEW_ROWS": 2},
    "engines.memory": {"_ALIGN_FROM": 1},
    "runtime.executor.compiled": {"LARGE": 2},
    "runtime.executor.plan": {"LARGE": 2},
    "runtime.executor.driver": {"HEAVY_NS": 0},
    "pipeline.partition": {"_SMALL_CONSTANT": 4},
    "pipeline.optimise.sharing": {"_SMALL": 8},
    "pipeline.optimise.folding": {"LARGEST_RESULT": 64},
    "ops.training": {"_TILE": 5, "ENGINE_FROM": 0},
    "ops.kernels.conv": {"_BLOCK_BYTES": 64},
    "ops.kernels.depthwise": {"_BLOCK_BYTES": 64},
    "ops.kernels.rows": {"FEW": 0},
    "ops.sorting": {"FEW": 0},
    "ops.kernels.segments": {"FEW_IN_A_GROUP": 0},
    "ops.kernels.softmax": {"FEW_CLASSES": 0},
    "ops.kernels.matrices": {"_BLOCK": 2},
    "ops.philox": {"TILE": 2, "WIDE_TILE": 3, "PARALLEL_FROM": 4},
    "ops.select": {"_BRANCHLESS_FROM": 0, "_PIECE": 3},
})  # fmt: skip
_SMALL_ONEDNN = {**_SMALL, **_named({
    "engines.onednn.binding": {
        "BLAS_ALONE": 0, "BLAS_ALONE_VECTOR": 0, "LARGE_VECTOR_PRODUCT": 0, "MIN_CONV_FLOPS": 0, "MIN_DEPTHWISE_FLOPS": 0, "MIN_BATCH_FLOPS": 0, "MIN_NARROW_FLOPS": 0, "MIN_FUSED_FLOPS": 0,
        "MIN_POOL_SIZE": 0, "MIN_NORM_SIZE": 0, "MIN_SOFTMAX_SIZE": 0,
    },
    "engines.onednn.product_kernels": {"FEW_TO_SUM": 1},
    "engines.onednn.narrow": {"MIN_SIZE": 1},
    "engines.onednn.elementwise": {"MIN_SIZE": 1},
    "engines.onednn.int8": {"MIN_FLOPS": 0, "MIN_USES": 1},
    "engines.onednn.updates": {"ELEMENTS_PER_US": 1e-3},
    "engines.onednn.plan": {"US_PER_THREAD": 1e-6},
    "engines.onednn.primitives": {"PARALLEL_COPY": 1},
    "engines.onednn.pool": {"LARGE": 64},
    "engines.onednn.conv": {"FEW_POSITIONS": 1, "SOME_POSITIONS": 2, "MANY_POSITIONS": 4, "LARGE_FILTER": 64, "FEW_CHANNELS": 1},
    "engines.onednn.winograd": {"WORTH_IT": 1e9, "STRIP_BYTES": 4096},
    "engines.onednn.matmul": {"FEW_ROWS": 1},
    "engines.onednn.fused": {"KEPT_LAYOUTS": 1},
    "pipeline.optimise.sums": {"MIN_PRODUCTS": 2, "MIN_SIZE": 1},
    "pipeline.optimise.unrolled": {"MIN_STEPS": 2, "MANY_STEPS": 2, "LARGE_WEIGHTS": 1},
})}  # fmt: skip
# Both engines on CPUs, as users have them, for shapes that are known, so that kernels side by side become chains.
_ENGINES = {**_EAGER, "PENSTOCK_ENGINES": "onednn,native", "PENSTOCK_SHAPES": "eager"}
_PATIENT = _named({"ops.native.updates": {"PATIENCE": 0}})
_SMALL_ENGINES = {**_SMALL_ONEDNN, **_PATIENT, **_named({
    "engines.python.chains": {"ENOUGH": 1, "QUICK_ELEMENTS": 1 << 30},
    "ops.native": {"SMALL": 2, "PIECE": 64},
    "ops.native.channels": {"LEAST": 1},
    "ops.native.duplicates": {"SHORT": 8},
    "ops.native.frames": {"PIECE": 32},
    "ops.native.rowwise": {"SMALLEST": 1, "NARROWEST": 1},
    "ops.native.searching": {"_FEW": 1},
    "ops.native.transposes": {"_LARGE": 64, "_PIECE": 64},
    "ops.kernels.boxes": {"_BOXES_FROM": 1},
    "ops.kernels.crops": {"_BLOCK": 64, "_THREADS_FROM": 64, "_NATIVE_FROM": 1},
    "ops.kernels.periods": {"LEAST": 1},
    "ops.kernels.resize": {"_NATIVE_FROM": 1},
    "ops.kernels.short_rows": {"LEAST": 1, "LEAST_ROWS": 1},
    "ops.kernels.topk": {"WIDE_FROM": 2},
})}  # fmt: skip
_WINOGRAD = _named({"engines.onednn.winograd": {"WORTH_IT": 1e9, "STRIP_BYTES": 4096}, "engines.onednn.binding": {"MIN_CONV_FLOPS": 0}})
_SMALL_XLA = _named({
    "engines.xla.segments.CpuPolicy": {"smallest": 2, "piece": 3},
    "engines.xla.segments.StatePolicy": {"piece": 3},
    "engines.xla.lower": {"FOLD": 2, "WRITTEN_OUT": 3},
    "engines.xla.program": {"EMBED": 1, "KNOWN_SIZE": 8, "MOST_SHAPES": 2},
    "engines.xla.hot": {"MOST_SHAPES": 2},
    "engines.xla.loops": {"MOST_CALLS": 3, "MOST_ROUNDS": 2, "FEWEST_ROUNDS": 1},
})  # fmt: skip


def _apart(executors: Any) -> Any:
    """In the place of `together`: nothing runs as one program."""
    return SimpleNamespace(straight=None, compiler=None, _chooser=None)


_SILENT_ON_GPUS = frozenset(("FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod", "Div", "Mod", "Gather", "GatherV2", "GatherNd", "ResourceGather", "ScatterNd", "MatrixInverse", "MatrixSolve", "Cholesky"))

MODES: dict[str, Mode] = {
    "off": Mode({}),
    "eager": Mode(_EAGER),
    # Runs of elementwise nodes as tiles, however short the arrays are; sums of tiles round differently.
    "tiled": Mode(_EAGER, False, {f"{_ELEMENTWISE}.MIN_SIZE": 2, f"{_ELEMENTWISE}.PARALLEL": 64}),
    # The same as loops in machine code.
    "sweeps": Mode({**_EAGER, "PENSTOCK_ENGINES": "native"}, False, {f"{_ELEMENTWISE}.MIN_SIZE": 2, f"{_ELEMENTWISE}.PARALLEL": 64, f"{_ELEMENTWISE}.COLUMNS": (1, 1 << 14)}),
    # As users have it: interpreted first, then compiled; here, in the step or on a thread.
    "warm": Mode({"PENSTOCK_REGIONS": "1"}, True, {f"{_COMPILED}.WARM": 1}),
    "background": Mode({"PENSTOCK_REGIONS": "1"}, True, {f"{_COMPILED}.WARM": 1, f"{_COMPILED}.AT_ONCE": 0, f"{_COMPILED}.AT_ONCE_LOOPS": 0}),
    # Cut into functions of a few statements.
    "parts": Mode(_EAGER, True, {"penstock.engines.python.codegen.PART": 8}),
    # Never compiled, but for loops: functions of three calls each, as very long programs have them.
    "pieces": Mode({"PENSTOCK_REGIONS": "1"}, True, {f"{_COMPILED}.WARM": 1 << 30, f"{_EXECUTOR}.pieces.LEAST": 1, f"{_EXECUTOR}.pieces.PART": 3}),
    # Executors for the shapes that are fed, from the first step on.
    "shapes": Mode({**_EAGER, "PENSTOCK_SHAPES": "eager"}, False),
    # Every step with a deadline.
    "deadline": Mode(_EAGER, True, {}, True),
    "deadline off": Mode({}, True, {}, True),
    # Region by region: the state machine runs all steps.
    "dataflow": Mode(_EAGER, True, {f"{_EXECUTOR}.shell.together": _apart, f"{_EXECUTOR}.driver.together": _apart}),
    "onednn": Mode(
        {**_EAGER, "PENSTOCK_ENGINES": "onednn"}, False,
        {f"{_ONEDNN}.{name}": 0 for name in ("MIN_CONV_FLOPS", "MIN_DEPTHWISE_FLOPS", "MIN_BATCH_FLOPS", "MIN_NARROW_FLOPS", "MIN_FUSED_FLOPS", "MIN_POOL_SIZE", "MIN_NORM_SIZE", "MIN_SOFTMAX_SIZE")},
    ),
    "onednn as is": Mode({**_EAGER, "PENSTOCK_ENGINES": "onednn"}, False),
    "engines": Mode(_ENGINES, False, _PATIENT),
    "engines warm": Mode({**_ENGINES, "PENSTOCK_REGIONS": "1"}, False, {f"{_COMPILED}.WARM": 1}),
    "winograd": Mode(_ENGINES, False, {**_PATIENT, **_WINOGRAD}),
    "xla": Mode({**_EAGER, "PENSTOCK_XLA": "eager"}, False),
    "xla deadline": Mode({**_EAGER, "PENSTOCK_XLA": "eager"}, False, {}, True),
    "all": Mode({**_EAGER, "PENSTOCK_ENGINES": "onednn", "PENSTOCK_XLA": "eager"}, False),
    # Every threshold as low as it goes, with NumPy's kernels, oneDNN's, and XLA's programs.
    "small": Mode(_EAGER, False, _SMALL),
    "small dataflow": Mode(_EAGER, False, {**_SMALL, f"{_EXECUTOR}.shell.together": _apart, f"{_EXECUTOR}.driver.together": _apart}),
    "small onednn": Mode({**_EAGER, "PENSTOCK_ENGINES": "onednn"}, False, _SMALL_ONEDNN),
    "small engines": Mode(_ENGINES, False, _SMALL_ENGINES),
    "small xla": Mode({**_EAGER, "PENSTOCK_XLA": "eager"}, False, _SMALL_XLA),
    # Callables in the place of Session.run; two threads in one session, at the same time where nothing is changed, in turns where it is.
    "callable": Mode(_EAGER, True, {}, False, "callable"),
    "callable onednn": Mode({**_EAGER, "PENSTOCK_ENGINES": "onednn"}, False, {}, False, "callable"),
    "threads": Mode(_EAGER, True, {}, False, "threads"),
    "threads warm": Mode({"PENSTOCK_REGIONS": "1"}, True, {f"{_COMPILED}.WARM": 1, f"{_COMPILED}.AT_ONCE": 0}, False, "threads"),
    "threads onednn": Mode({**_EAGER, "PENSTOCK_ENGINES": "onednn"}, False, {}, False, "threads"),
    "threads engines": Mode(_ENGINES, False, _PATIENT, False, "threads"),
    "threads xla": Mode({**_EAGER, "PENSTOCK_XLA": "eager"}, False, {}, False, "threads"),
    # What a GPU would run, on JAX's CPU platform. Programs of GPUs report no bad data: `docs/config.md` has what they give instead.
    "gpu": Mode({**_EAGER, "PENSTOCK_GPU_PLATFORM": "cpu"}, False, silent=_SILENT_ON_GPUS),
}  # fmt: skip

GROUPS: dict[str, tuple[list[str], list[str]]] = {
    # always, and one of these by the program's seed
    "regions": (["eager"], ["tiled", "sweeps", "warm", "background", "parts", "pieces", "shapes", "deadline", "deadline off", "dataflow", "small", "small dataflow", "callable", "threads", "threads warm", "engines", "winograd", "small engines"]),
    "onednn": (["onednn"], ["small onednn", "onednn as is", "callable onednn", "threads onednn"]),
    "engines": (["winograd"], ["small engines", "engines", "engines warm", "threads engines"]),
    "xla": ([], ["xla", "small xla", "xla deadline", "threads xla", "all"]),
}


def _owner(path: str) -> Any:
    """A module, or a class of one, by its name."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name) if name[0].isupper() else importlib.import_module(path)


@contextlib.contextmanager
def setting(mode: Mode) -> Iterator[None]:
    """The environment and the constants of a mode, while sessions are made and run."""
    env = {**PLAIN, **mode.env}
    before = {k: os.environ.get(k) for k in env}
    kept = []
    os.environ.update(env)
    for path, value in mode.constants.items():
        module, _, name = path.rpartition(".")
        owner = _owner(module)
        kept.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)
        for k, v in before.items():
            if v is None:
                del os.environ[k]
            else:
                os.environ[k] = v
