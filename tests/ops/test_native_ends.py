"""Loops in machine code read and write their elements and nothing behind them, whatever the types, however many there are."""

import ctypes
import mmap

import ml_dtypes
import numpy as np
import pytest

from penstock.ops import native
from penstock.ops.native import calls, choosing, compiler, sweeps
from penstock.ops.native.sweeps import FLAT, FULL, ROWS, Formula

pytestmark = pytest.mark.skipif(not native.available(), reason="no machine code here")

NAMES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "i8": np.int8, "u8": np.uint8,
    "i16": np.int16, "u16": np.uint16, "bool": np.bool_,
}  # fmt: skip
SIZES = [1, 7, 8, 15, 16, 17, 32, 47, 160, 161]


class Guarded:
    """An array that ends where the page after it may not be touched."""

    PAGE = mmap.PAGESIZE

    def __init__(self, values: np.ndarray) -> None:
        size = -(-values.nbytes // self.PAGE) * self.PAGE
        self.area = mmap.mmap(-1, size + self.PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.area))
        self.address = start + size - values.nbytes
        self.before = size - values.nbytes
        self.array = np.frombuffer(self.area, values.dtype, values.size, self.before)
        self.array[...] = values
        self.behind = start + size
        assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(self.behind), ctypes.c_size_t(self.PAGE), 0) == 0

    def release(self) -> None:
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(self.behind), ctypes.c_size_t(self.PAGE), 3)


@pytest.mark.parametrize("compute", ["f32", "f64"])
@pytest.mark.parametrize("target", ["f16", "bf16", "f32", "f64", "i32", "i64", "i8", "u8", "i16", "u16", "bool"])
@pytest.mark.parametrize("source", ["f16", "bf16", "f32", "f64", "i32", "i8", "u8", "i16", "u16"])
def test_formulas(source, target, compute):
    if (compute == "f32" and "f64" in (source, target)) or (compute == "f32" and target == "i64") or (compute == "f64" and target == "bf16"):
        pytest.skip("no such loop")
    formula = (lambda x: x > 3.0) if target == "bool" else (lambda x: x + 1.0)
    function, _ = compiler.compile_loop(formula, [source], [target], compute)
    for n in SIZES:
        x = Guarded((np.arange(n) % 7).astype(NAMES[source]))
        y = Guarded(np.zeros(n, NAMES[target]))
        function(n, x.address, y.address)
        got = y.array.astype(np.float64)
        x.release(), y.release()
        want = np.arange(n) % 7
        np.testing.assert_array_equal(got, want > 3 if target == "bool" else want + 1)


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("result", ["number", "bool"])
@pytest.mark.parametrize("shape", [FLAT, ROWS])
def test_sweeps(shape, result, type):
    ufunc, want_type = (np.greater, "bool") if result == "bool" else (np.add, type)
    formula = Formula(type, ((FULL, type, b""), (FULL, type, b"")), ((ufunc, (0, 1), False),), ((2, want_type, False),), (), shape)
    sweep = sweeps.compiled(formula)
    for n in SIZES:
        rng = np.random.RandomState(n)
        x, y = (Guarded(rng.randint(0, 9, n).astype(NAMES[type])) for _ in range(2))
        z = Guarded(np.zeros(n, NAMES[want_type]))
        rows = 1 if shape == FLAT or n % 2 else 2
        sweep._run(rows, n // rows, [x.address, y.address, z.address], None, 0, ())
        want, got = ufunc(x.array, y.array), z.array.copy()
        for guarded in (x, y, z):
            guarded.release()
        np.testing.assert_array_equal(got, want)


def test_masks_are_for_the_last_elements_only():
    """A store with a mask has the processor read what it writes over."""
    written = []

    class Code(compiler.Code):
        def _emit_all(self):
            written.append(self.active)
            super()._emit_all()

    from penstock.ops.native.vectors import Trace

    trace = Trace(False, "f32")
    value = trace.add("input", [], "f32", (0, "f32"))
    trace.add("output", [value + 1.0], "none", (1, "f32", 0))
    Code(trace, 16, [64, 64]).write()
    assert written == [0, compiler._ACTIVE]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("single", ["", "yes", "no"])
def test_choices(kind, single):
    for n in SIZES:
        condition = Guarded(np.arange(n) % 3 == 0)
        yes, no = (Guarded(np.arange(1 if single == name else n).astype(kind) + start) for name, start in (("yes", 100), ("no", 500)))
        out = Guarded(np.zeros(n, kind))
        choosing.choose(condition.array, yes.array, no.array, out.array)
        want, got = np.where(condition.array, yes.array, no.array), out.array.copy()
        for guarded in (condition, yes, no, out):
            guarded.release()
        np.testing.assert_array_equal(got, want)


def test_rows_that_are_copied():
    copy = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 6)(calls.copy_rows())
    for words in SIZES:
        source, target = Guarded(np.arange(3 * words, dtype=np.int32)), Guarded(np.full(2 * words + words, -1, np.int32))
        copy(target.address, 8 * words, source.address + 4 * words, 4 * words, 2, words)
        got, want = target.array.reshape(3, words).copy(), source.array.reshape(3, words).copy()
        source.release(), target.release()
        np.testing.assert_array_equal(got[::2], want[1:])
        assert (got[1] == -1).all()
