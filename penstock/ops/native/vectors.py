"""Vectors that stand for any eight (64-bit) or sixteen (32-bit) numbers: what formulas are called with to find out what they compute.

A `Vec` has NumPy's operators and answers NumPy's functions, so that a formula written for arrays can be traced as it is; see `maths` for exp, log and
the like. `piecewise`, `only_if` and `repeat` are what branches become: all lanes take part, masks choose.

The trace is a list of `Node`s. `compiler` makes code out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

FLOATS = ("f32", "f64")


_BEGIN, _END = ("if", "loop"), ("end", "again")
_CHANGING = frozenset(("variable", "value", "memory"))
"""Instructions that give something else each time."""


class Node:
    """One instruction of a trace: `name`, operands (nodes), the type of its result, and what else it needs."""

    __slots__ = ("data", "inputs", "name", "number", "type")

    def __init__(self, name: str, inputs: tuple[Node, ...], type: str, data: Any) -> None:
        self.name, self.inputs, self.type, self.data = name, inputs, type, data
        self.number = -1


class Trace:
    """The instructions in order. `fuse`: products that are added to something are not rounded in between. `compute`: the type of plain numbers."""

    def __init__(self, fuse: bool = True, compute: str = "f64") -> None:
        self.nodes: list[Node] = []
        self.fuse, self.compute = fuse, compute
        self.wanted: Vec | None = None  # the lanes of the `only_if` around
        self._constants: dict[tuple[str, Any], Vec] = {}
        self._known: list[dict[tuple[Any, ...], Vec]] = [{}]  # what has been computed here, and in the branches and loops around

    def add(self, name: str, inputs: Sequence[Vec], type: str, data: Any = None) -> Vec:
        """One more instruction; what is computed already is not computed again."""
        nodes = tuple(v.node for v in inputs)
        key = name, *map(id, nodes), type, data
        if name in _BEGIN:
            self._known.append({})
        elif name in _END:
            self._known.pop()
        elif type != "none" and name not in _CHANGING:
            for known in self._known:
                if key in known:
                    return known[key]
        vector = Vec(self, Node(name, nodes, type, data))
        self._known[-1][key] = vector
        self.nodes.append(vector.node)
        return vector

    def constant(self, value: Any, type: str) -> Vec:
        """A number in all lanes. Constants are no instructions: the compiler puts them where they are used."""
        value = float(value) if type in FLOATS else int(value)
        key = type, np.float64(value).tobytes() if type in FLOATS else value
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = Vec(self, Node("constant", (), type, value))
        return found

    def table(self, values: np.ndarray, type: str) -> Vec:
        """A vector of different numbers."""
        return Vec(self, Node("table", (), type, values))

    def memory(self, index: int, offset: int, type: str, *, broadcast: bool = False) -> Vec:
        """What lies at the index-th pointer plus `offset` bytes: a whole vector, or one number in all lanes."""
        return self.add("memory", [], type, (index, offset, broadcast))

    def store(self, value: Vec, index: int, offset: int = 0) -> None:
        """A whole vector, to the index-th pointer plus `offset` bytes."""
        self.add("store_all", [value], "none", (index, offset))


class Vec:
    """One value of a trace."""

    __slots__ = ("node", "trace")

    def __init__(self, trace: Trace, node: Node) -> None:
        self.trace, self.node = trace, node

    @property
    def type(self) -> str:
        return self.node.type

    @property
    def dtype(self) -> np.dtype:
        return np.dtype({"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}[self.type])

    # -- making others ------------------------------------------------------------------------------------------------------

    def like(self, value: Any) -> Vec:
        """`value` as a vector of this one's type."""
        return value if isinstance(value, Vec) else self.trace.constant(value, self.type)

    def op(self, name: str, *others: Any, type: str | None = None, data: Any = None) -> Vec:
        values = [self, *map(self.like, others)]
        return self.trace.add(f"{name}.{self.type}", values, type or self.type, data)

    def _is(self, name: str) -> bool:
        return self.trace.fuse and self.node.name == f"{name}.{self.type}" and self.type in FLOATS

    def __add__(self, other: Any) -> Vec:
        other = self.like(other)
        for product, rest in ((self, other), (other, self)):
            if product._is("mul"):
                return _fused("madd", product, rest)
        return self.op("add", other)

    def __radd__(self, other: Any) -> Vec:
        return self.like(other) + self

    def __sub__(self, other: Any) -> Vec:
        other = self.like(other)
        if other._is("mul"):
            return _fused("nmadd", other, self)
        if self._is("mul"):
            return _fused("msub", self, other)
        return self.op("sub", other)

    def __rsub__(self, other: Any) -> Vec:
        return self.like(other) - self

    def __mul__(self, other: Any) -> Vec:
        return self.op("mul", other)

    def __rmul__(self, other: Any) -> Vec:
        return self.op("mul", other)

    def __truediv__(self, other: Any) -> Vec:
        if self.trace.fuse and not isinstance(other, Vec):
            return self * (1 / other)
        return self.op("div", other)

    def __rtruediv__(self, other: Any) -> Vec:
        return self.like(other).op("div", self)

    def __pow__(self, other: int) -> Vec:
        result = self
        for _ in range(other - 1):
            result = result * self
        return result

    def __mod__(self, other: float) -> Vec:
        return self - (self * (1 / other)).op("round", data=9) * other

    def __neg__(self) -> Vec:
        return (self.bits() ^ _sign_bit(self)).as_type(self.type) if self.type in FLOATS else self.like(0) - self

    def __pos__(self) -> Vec:
        return self

    # -- bits ---------------------------------------------------------------------------------------------------------------

    def as_type(self, type: str) -> Vec:
        """The same bits as another type of the same width."""
        return self if type == self.type else self.trace.add("same", [self], type)

    def bits(self) -> Vec:
        return self.as_type("i" + self.type[1:])

    def __and__(self, other: Any) -> Vec:
        return self._mask_op("and", other) if self.type == "mask" else self.op("and", other)

    def __or__(self, other: Any) -> Vec:
        return self._mask_op("or", other) if self.type == "mask" else self.op("or", other)

    def __xor__(self, other: Any) -> Vec:
        return self._mask_op("xor", other) if self.type == "mask" else self.op("xor", other)

    def __invert__(self) -> Vec:
        return self.trace.add("mask.not", [self], "mask")

    def _mask_op(self, name: str, other: Vec) -> Vec:
        return self.trace.add(f"mask.{name}", [self, other], "mask")

    def __lshift__(self, bits: int) -> Vec:
        return self.op("shl", data=bits)

    def __rshift__(self, bits: int) -> Vec:
        """Zeros come in."""
        return self.op("shr", data=bits)

    def shift_signed(self, bits: int) -> Vec:
        return self.op("sar", data=bits)

    # -- comparisons ----------------------------------------------------------------------------------------------------------

    def _compare(self, other: Any, float_predicate: int, int_predicate: int) -> Vec:
        other = self.like(other)
        return self.trace.add(f"cmp.{self.type}", [self, other], "mask", float_predicate if self.type in FLOATS else int_predicate)

    def __lt__(self, other: Any) -> Vec:
        return self._compare(other, 17, 1)

    def __le__(self, other: Any) -> Vec:
        return self._compare(other, 18, 2)

    def __gt__(self, other: Any) -> Vec:
        return self._compare(other, 30, 6)

    def __ge__(self, other: Any) -> Vec:
        return self._compare(other, 29, 5)

    def __eq__(self, other: object) -> Vec:  # type: ignore[override]
        return self._compare(other, 0, 0)

    def __ne__(self, other: object) -> Vec:  # type: ignore[override]
        return self._compare(other, 4, 4)

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> Vec:
        return self

    # -- NumPy's functions ------------------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        from penstock.ops.native import maths

        function = maths.UFUNCS.get(ufunc)
        if function is None or method != "__call__" or keywords:
            return NotImplemented
        model = next((v for v in inputs if isinstance(v, Vec) and v.type != "mask"), self)
        return function(*(model.like(v) for v in inputs))

    def __array_function__(self, function: Any, types: Any, args: Any, keywords: Any) -> Any:
        from penstock.ops.native import maths

        found = maths.FUNCTIONS.get(function)
        return NotImplemented if found is None else found(*args, **keywords)


def _fused(name: str, product: Vec, rest: Vec) -> Vec:
    factors = [Vec(product.trace, node) for node in product.node.inputs]
    return product.trace.add(f"{name}.{product.type}", [*factors, rest], product.type)


def rounding_of(product: Vec) -> Vec:
    """The exact product less the rounded one."""
    return _fused("msub", product, product)


def _sign_bit(x: Vec) -> Vec:
    return x.trace.constant(1 << int(x.type[1:]) - 1, "i" + x.type[1:])


# -- choices ------------------------------------------------------------------------------------------------------------------


def select(mask: Vec, yes: Any, no: Any) -> Vec:
    """`yes` in the lanes of the mask, `no` in the others."""
    model = yes if isinstance(yes, Vec) else no if isinstance(no, Vec) else mask.trace.constant(0, mask.trace.compute)
    yes, no = model.like(yes), model.like(no)
    return mask.trace.add(f"blend.{model.type}", [mask, no, yes], model.type)


def only_if(mask: Vec, function: Callable[[], Vec], otherwise: Vec) -> Vec:
    """function() in the lanes of the mask, `otherwise` in the others; the function is passed over where no lane wants it."""
    trace, around = mask.trace, mask.trace.wanted
    slot = trace.add("variable", [otherwise], otherwise.type)
    trace.add("if", [mask], "none")
    trace.wanted = mask if around is None else mask & around
    trace.add("assign", [slot, select(mask, function(), otherwise)], "none")
    trace.wanted = around
    trace.add("end", [], "none")
    return trace.add("value", [slot], otherwise.type)


def repeat(condition: Callable[..., Vec], body: Callable[..., Sequence[Vec]], *start: Vec) -> tuple[Vec, ...]:
    """While any lane's condition holds: values = body(*values) in these lanes. The others keep theirs."""
    trace = start[0].trace
    slots = [trace.add("variable", [value], value.type) for value in start]
    trace.add("loop", slots, "none")
    values = [trace.add("value", [slot], slot.type) for slot in slots]
    going = condition(*values)
    if trace.wanted is not None:
        going = going & trace.wanted
    trace.add("unless", [going], "none")
    news = [
        (slot, select(going, new, value))
        for slot, value, new in zip(slots, values, body(*values), strict=True)
        if new.node is not value.node
    ]
    for slot, new in news:  # all of them are known before the first changes
        trace.add("assign", [slot, new], "none")
    trace.add("again", slots, "none")
    return tuple(trace.add("value", [slot], slot.type) for slot in slots)
