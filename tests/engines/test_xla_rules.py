"""Every XLA rule against the NumPy kernel of its op, on the op's samples: values, shapes, types.

All inputs of a case are traced at first. Where the rule says that it needs to know some of them (Dynamic), the smallest set of arguments
that satisfies it is made constant. One program holds all cases of an op, since compiling is what takes time.
"""

import itertools

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import penstock as tf
from penstock import dtypes, errors
from penstock.engines.xla import rule as rules
from penstock.engines.xla import rules as _all_rules  # noqa: F401 (importing registers)
from penstock.graph.bind import bind, input_ranges
from penstock.graph.opdef import OPS
from penstock.ops.cases import cases, expand, programs, samples_of
from penstock.ops.kernels.numeric import NARROW
from penstock.ops.samples import arr, ints, normal
from tests.ops.test_samples import build

RULES = rules.RULES
NAMES = sorted(RULES)

EXTRA = {
    "IdentityN": [dict(input=[normal(2, 3, dtype=np.float32), ints(2, dtype=np.int64)])],
    "TileGrad": [dict(input=normal(4, 3), multiples=arr([2, 1]))],
}
"""Samples for ops that have none that are numbers."""

UNSAMPLED = {
    "BatchSelfAdjointEig", "BatchSelfAdjointEigV2", "BatchSvd", "Conv2DBackpropFilterV2", "Conv2DBackpropInputV2", "MatrixExponential",
    "MaxPoolGradGradWithArgmax", "QuantizeAndDequantize", "SelfAdjointEig",
    "_FusedMatMul", "_LSTMSteps", "_LSTMTraining", "_LSTMTrainingGrad", "_LayerNorm", "_LayerNormGrad", "_MatMulColumns", "_ScaledBatchMatMul", "_SoftmaxGrad", "_SumOfProducts", "_SumOfProductsAndRows",  # made by the optimiser; `test_xla.py` has them
}  # fmt: skip
"""Ops without samples whose rules nothing here runs: old names of others, or forms of them."""

MANY = {"Cast": 4}
"""Ops with very many samples: only each n-th runs; `test_types` looks at all of them."""

AMBIGUOUS = {"Svd", "SelfAdjointEigV2"}
"""Ops with more than one right answer (the signs of vectors): only shapes and types are compared."""

TOLERANCE = {
    np.dtype(np.float64): (1e-9, 1e-12),
    np.dtype(np.complex128): (1e-9, 1e-12),
    np.dtype(np.float32): (2e-5, 2e-6),
    np.dtype(np.complex64): (2e-5, 2e-6),
    np.dtype(np.float16): (2e-3, 1e-3),
    np.dtype(dtypes.bfloat16.np): (2e-2, 1e-2),
}
LOOSE: dict = {}
"""By op: tolerances where XLA's own algorithm is less exact than the kernel's."""


class Trial:
    """One case: the node, its inputs by argument, what the kernel says, and which arguments the rule needs to know."""

    def __init__(self, case, op, flat):
        self.case = case
        self.op = op
        self.rule = RULES[op.type]
        self.flat = [np.asarray(value) for value in flat]
        self.ranges = input_ranges(self.op)
        self.static = ()

    @property
    def is_numeric(self):
        return all(t.dtype.np.kind != "O" for t in (*self.op.inputs, *self.op.outputs))

    def expected(self):
        bound = bind(self.op)
        with np.errstate(all="ignore"):
            if bound.needs_ctx or bound.is_async:
                with tf.Session(graph=self.op.graph) as sess:
                    return sess.run(self.op.outputs, dict(zip(self.op.inputs, self.flat)))
            result = bound.fn(*self.flat)
        return [result] if bound.plain else list(result)

    def known(self, i):
        return any(start <= i < stop for start, stop, _ in (self.ranges[a] for a in self.static))

    def traced(self):
        return [x for i, x in enumerate(self.flat) if not self.known(i)]

    def call(self, traced):
        """The rule's outputs, flat, for traced values in the place of those that are not known."""
        rest = iter(traced)
        flat = [x if self.known(i) else next(rest) for i, x in enumerate(self.flat)]
        args = [flat[start:stop] if is_list else flat[start] for start, stop, is_list in self.ranges]
        result = self.rule.fn(*args, **{name: self.op.attrs[name] for name in self.rule.attrs})
        return list(result) if isinstance(result, (list, tuple)) else [result]

    def settle(self, hint):
        """Finds the smallest set of arguments that must be known: the shapes and types of the result, or None if there is no answer."""
        arguments = range(len(self.ranges))
        sets = itertools.chain([hint], *(itertools.combinations(arguments, n) for n in range(len(self.ranges) + 1)))
        for self.static in sets:
            try:
                return jax.eval_shape(self.call, self.traced())
            except rules.Dynamic:
                continue
            except rules.Unsupported:
                return None
        raise AssertionError(f"{self.case}: Dynamic even with all inputs known")


def variables(opdef):
    """Whether an op reads or writes variables: sessions test those."""
    return any(arg.is_ref or arg.dtype is dtypes.resource for arg in opdef.inputs)


def of_case(case):
    with tf.Graph().as_default():
        op, feeds = build(case)
    return Trial(case, op, [feeds[t] for t in op.inputs])


def of_programs(opdef):
    """The nodes of this type in the op's sample programs, with the inputs that they get there."""
    for number, program in enumerate(programs(opdef)):
        with tf.Graph().as_default() as graph:
            program.fn(tf)
            for op in graph.get_operations():
                if op.type == opdef.name and all(t.dtype.np.kind != "O" for t in op.inputs):
                    with tf.Session() as sess:
                        yield Trial(f"{opdef.name}, program {number}", op, sess.run(op.inputs))


def samples(name):
    """All cases of an op; an old name of an op has the samples of the new one."""
    opdef = OPS[name]
    if name in EXTRA:
        return [of_case(case) for i, sample in enumerate(EXTRA[name]) for case in expand(opdef, i, sample)]
    if name.startswith("Batch") and name[5:] in OPS and not opdef.samples:
        return list(borrowed(opdef, OPS[name[5:]]))
    return [*map(of_case, cases(opdef)), *of_programs(opdef)]


def borrowed(opdef, newer):
    for number, sample in enumerate(samples_of(newer)):
        if isinstance(sample, dict):
            for case in expand(opdef, number, sample):
                try:
                    yield of_case(case)
                except (TypeError, ValueError):  # a type or shape that only the newer op has
                    continue


def settled(trials):
    """Those that the rule has an answer for."""
    hint = ()
    for trial in trials:
        trial.shapes = trial.settle(hint)
        if trial.shapes is not None:
            hint = trial.static
            yield trial


def agree(trial, got, want):
    assert len(got) == len(want) == len(trial.op.outputs)
    for i, (a, b, tensor) in enumerate(zip(got, want, trial.op.outputs)):
        what = f"{trial.case}, output {i}, known arguments {trial.static}"
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == tensor.dtype.np, f"{what}: {a.dtype} instead of {tensor.dtype.np}"
        assert a.shape == b.shape, f"{what}: {a.shape} instead of {b.shape}"
        if trial.op.op_def.stateful or trial.op.type in AMBIGUOUS:
            continue
        if b.dtype in TOLERANCE:
            rtol, atol = LOOSE.get(trial.op.type, TOLERANCE[b.dtype])
            if b.dtype in NARROW:
                a, b = a.astype(np.float32), b.astype(np.float32)
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=what)
        else:
            np.testing.assert_array_equal(a, b, err_msg=what)


def compiled(found):
    """The results of all trials, out of one program."""
    program = jax.jit(lambda values: [t.call(v) for t, v in zip(found, values)])
    options = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    values = [t.traced() for t in found]
    return program.lower(values).compile(compiler_options=options)(values)


@pytest.mark.parametrize("name", [n for n in NAMES if not variables(OPS[n])])
def test_values(name):
    found = [t for t in samples(name) if t.is_numeric]
    if not found:
        assert name in UNSAMPLED
        pytest.skip("no samples")
    with jax.enable_x64(True):
        taken = list(settled(found[:: MANY.get(name, 1)]))
        assert taken, f"{name}: the rule takes none of the op's samples"
        for trial, got in zip(taken, compiled(taken)):
            agree(trial, got, trial.expected())


@pytest.mark.parametrize("name", [n for n in NAMES if not variables(OPS[n]) and not OPS[n].stateful])
def test_types(name):
    """The first sample in all types that the op allows, and what the kernel refuses: shapes and types, without running."""
    found = [of_case(c) for c in cases(OPS[name], every_type=True) if c.index == 0 or name in MANY]
    with jax.enable_x64(True):
        for trial in settled([t for t in found if t.is_numeric]):
            try:
                want = [(v.shape, v.dtype) for v in trial.expected()]
            except errors.OpError:
                assert trial.rule.may_raise(trial.op.attrs), f"{trial.case}: the kernel reports bad data, and the rule does not say so"
                continue
            assert [(v.shape, v.dtype) for v in trial.shapes] == want, f"{trial.case}, known arguments {trial.static}"


@pytest.mark.parametrize("name", [n for n in NAMES if not variables(OPS[n]) and OPS[n].samples and len(OPS[n].inputs) > 1])
def test_one_argument_that_is_not_known(name):
    """Arguments may come as NumPy arrays, all of them or all but one: the result is the same."""
    with jax.enable_x64(True):
        for trial in settled([t for t in map(of_case, itertools.islice(cases(OPS[name]), 2)) if t.is_numeric]):
            needed, want = trial.static, [(v.shape, v.dtype) for v in trial.shapes]
            for alone in (None, *range(len(trial.ranges))):
                if alone not in needed:
                    trial.static = [i for i in range(len(trial.ranges)) if i != alone]
                    got = jax.eval_shape(trial.call, trial.traced())
                    assert [(v.shape, v.dtype) for v in got] == want, f"{trial.case}, traced argument {alone}"


# -- what samples do not show -------------------------------------------------------------------------------------------


def call(name, *args, **attrs):
    """A rule by itself, compiled, arrays traced, lists and numbers of Python known."""
    defaults = {k: a.default for k, a in OPS[name].attrs.items() if k in RULES[name].attrs and k not in attrs}
    known = [a if isinstance(a, np.ndarray) else np.array(a, np.int32) for a in args]

    def program(values):
        rest = iter(values)
        return RULES[name].fn(*(next(rest) if isinstance(a, np.ndarray) else k for a, k in zip(args, known)), **defaults, **attrs)

    with jax.enable_x64(True):
        return np.asarray(jax.jit(program)([a for a in args if isinstance(a, np.ndarray)]))


X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_an_index_that_is_not_known():
    """x[i], x[..., i] and slices of known size from somewhere."""
    for i in (0, 2, -1):
        at = np.array([i], np.int32)
        np.testing.assert_array_equal(call("StridedSlice", X, at, at + 1, [1], shrink_axis_mask=1), X[i])
        both = np.array([0, i], np.int32)
        np.testing.assert_array_equal(call("StridedSlice", X, both, both, [1, 1], ellipsis_mask=1, shrink_axis_mask=2), X[..., i])
        gradient = call("StridedSliceGrad", [3, 4], at, at + 1, [1], X[0], T=dtypes.float32, shrink_axis_mask=1)
        want = np.zeros_like(X)
        want[i] = X[0]
        np.testing.assert_array_equal(gradient, want)
        updated = call("TensorStridedSliceUpdate", X, at, at + 1, [1], np.float32([[7]])[0], shrink_axis_mask=1)
        np.testing.assert_array_equal(updated[i], [7] * 4)
        assert (updated == 7).sum() == 4 + (i != 1)
    np.testing.assert_array_equal(call("Slice", X, np.array([1, 2]), [2, 1]), X[1:3, 2:3])


def test_spans_must_be_known():
    for args in ((X, np.array([1]), np.array([2]), [1]), (X, [1], np.array([2]), [1]), (X, np.array([1]), [2], np.array([1]))):
        with pytest.raises(rules.Dynamic):
            call("StridedSlice", *args)
    with pytest.raises(rules.Dynamic):
        call("Slice", X, np.array([1, 2]), [-1, 1])


def test_programs_that_report_nothing_are_not_for_cpus():
    token = rules.REPORTS.set(True)
    try:
        with pytest.raises(rules.Dynamic):
            call("Slice", X, np.array([1, 2]), [2, 1])
        np.testing.assert_array_equal(call("Slice", X, [1, 2], [2, 1]), X[1:3, 2:3])
        at = np.array([1], np.int32)
        with pytest.raises(rules.Dynamic):
            call("StridedSlice", X, at, at, [1], shrink_axis_mask=1)
    finally:
        rules.REPORTS.reset(token)


def test_indices_that_name_nothing():
    """Zeros when gathering, nothing when scattering: as on TensorFlow's GPUs."""
    bad = np.array([1, -1, 3, 0])
    np.testing.assert_array_equal(call("GatherV2", X, bad, 0), [X[1], 0 * X[0], 0 * X[0], X[0]])
    np.testing.assert_array_equal(call("GatherNd", X, np.array([[1, 4], [2, 3], [-1, 0]])), [0, 11, 0])
    scattered = call("ScatterNd", bad[:, None], np.ones(4, np.float32), [3], T=dtypes.float32)
    np.testing.assert_array_equal(scattered, [1, 1, 0])
    np.testing.assert_array_equal(call("UnsortedSegmentSum", X, np.array([5, -1, 1]), 2), [0 * X[0], X[2]])


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_the_best_of_segments_with_nan(kind):
    """A NaN hides what comes before it, the next number hides the NaN."""
    nan, inf = np.nan, np.inf
    data = np.array([nan, 1, 2, nan, nan, nan, -inf, nan, -inf, inf, 3, nan, 1, nan, inf], kind)
    ids = [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 6, 6, 6, 7, 7]
    want = {"Max": [1, nan, nan, nan, inf, 0, 1, inf], "Min": [1, nan, nan, nan, -inf, 0, 1, inf]}
    for x, pick in ((data, lambda y: y), (np.stack([data, np.zeros_like(data), data], 1), lambda y: y[:, 2])):
        for name, values in want.items():
            np.testing.assert_array_equal(pick(call(f"Segment{name}", x, ids)), np.array(values, kind))
            unsorted = pick(call(f"UnsortedSegment{name}", x, np.array([*ids[:-1], -1]), 8))
            values = np.array([*values[:-1], nan], kind)  # whose last one has no segment
            values[5] = np.finfo(kind).min if name == "Max" else np.finfo(kind).max
            np.testing.assert_array_equal(unsorted, values)


def test_whole_numbers_wrap():
    top = np.array([2**31 - 1, -(2**31)], np.int32)
    np.testing.assert_array_equal(call("AddV2", top, np.int32([1, -1])), np.int32([-(2**31), 2**31 - 1]))
    np.testing.assert_array_equal(call("Pow", np.int32([3, -3]), np.int32([21, 21])), np.int32([3, -3]) ** 21)
    np.testing.assert_array_equal(call("Pow", np.int64([7]), np.int64([2**62 + 1])), np.int64([7]) ** np.int64([2**62 + 1]))
    odd = np.float32([np.nan, 3e9, -3e9, np.inf])
    for target in (dtypes.int32, dtypes.int64, dtypes.uint8):
        with np.errstate(invalid="ignore"):
            want = OPS["Cast"].kernel(odd, SrcT=dtypes.float32, DstT=target, Truncate=False)
        np.testing.assert_array_equal(call("Cast", odd, SrcT=dtypes.float32, DstT=target), want)


def test_only_whole_numbers_complain_about_zero():
    assert RULES["FloorDiv"].may_raise({"T": dtypes.int32})
    assert not RULES["FloorDiv"].may_raise({"T": dtypes.float32})
    assert RULES["GatherV2"].may_raise({})


def test_shapes_are_known_at_once():
    """Shape ops give NumPy arrays even for traced values, so that what depends on them is known as well."""
    seen = []

    def program(x):
        seen.append(RULES["Shape"].fn(x, out_type=dtypes.int64))
        seen.append(RULES["Size"].fn(x, out_type=dtypes.int32))
        seen.append(RULES["Rank"].fn(x))
        return x

    jax.make_jaxpr(program)(X)
    assert [type(v).__module__ for v in seen] == ["numpy"] * 3
    assert [v.tolist() for v in seen] == [[3, 4], 12, 2]
