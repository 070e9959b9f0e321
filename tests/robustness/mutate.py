"""Mutations of GraphDefs: of their bytes, and of their structure through the messages.

Every mutation takes a `random.Random` and changes a GraphDef in place (or makes new bytes); none of them cares about sense.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from penstock.formats import protos
from penstock.graph.opdef import OPS

INTS = (0, 1, -1, 2, 3, 7, 100, 2**31 - 1, -(2**31), 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
SIZES = (-2, -1, 0, 1, 2, 3, 5, 2**15, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
NAMES = ("", "x", "a/b", "_x", "x:0", "^x", "x\n", "\x00", "é", "a" * 5000, "loc:@x", "x:9999999999999999999999", "x:-1", "x:²", "import/x")
FUNCTIONS = ("Double", "Negate", "Less10", "Indexed", "Twice", "Forever", "", "Nowhere", "AddV2")
DEVICES = ("", "/cpu:0", "/cpu:1", "/device:CPU:7", "/gpu:0", "/job:a/replica:0/task:99999999999999999999/cpu:0", "nonsense", "/", "/cpu:*", "\n")


# -- bytes --------------------------------------------------------------------------------------------------------------


def mutate_bytes(data: bytes, other: bytes, r: random.Random) -> bytes:
    """Flips, cuts, repeats and splices."""
    out = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 4, 16))):
        if not out:
            break
        at = r.randrange(len(out))
        kind = r.randrange(7)
        if kind == 0:
            out[at] ^= 1 << r.randrange(8)
        elif kind == 1:
            out[at] = r.choice((0, 1, 127, 128, 255, r.randrange(256)))
        elif kind == 2:
            del out[at : len(out) if r.random() < 0.2 else at + r.randrange(1, 20)]
        elif kind == 3:
            out[at:at] = r.randbytes(r.randrange(1, 9))
        elif kind == 4:
            start = r.randrange(len(other))
            out[at : at + r.randrange(40)] = other[start : start + r.randrange(40)]
        elif kind == 5:
            out[at:at] = out[at : at + r.randrange(1, 200)]
        else:
            out[at : at + 8] = r.choice((b"\xff" * 8, b"\x00" * 8, b"\xff" * 9 + b"\x01"))
    return bytes(out)


def mutate_nodes(graph_def: Any, r: random.Random) -> None:
    """Damages the bytes of a few nodes or functions, each in a way that still parses."""
    for _ in range(r.choice((1, 1, 2, 4))):
        rows = graph_def.library.function if len(graph_def.library.function) and r.random() < 0.4 else graph_def.node
        row = rows[r.randrange(len(rows))]
        data, other = row.SerializeToString(), rows[r.randrange(len(rows))].SerializeToString() or b"\0"
        for _ in range(6):
            try:
                row.CopyFrom(type(row).FromString(mutate_bytes(data, other, r)))
                break
            except DecodeError:
                continue


# -- pieces -------------------------------------------------------------------------------------------------------------


def random_shape(shape: Any, r: random.Random) -> None:
    shape.Clear()
    if r.random() < 0.15:
        shape.unknown_rank = True
    for _ in range(r.choice((0, 1, 1, 2, 3, 4, 70, 300) if r.random() < 0.2 else (0, 1, 2, 3))):
        shape.dim.add(size=r.choice(SIZES) if r.random() < 0.5 else r.randrange(4))


def random_tensor(tensor: Any, r: random.Random) -> None:
    """A tensor whose parts may contradict each other."""
    what = r.randrange(5)
    if what == 0:
        random_shape(tensor.tensor_shape, r)
    elif what == 1:
        tensor.dtype = r.choice((0, 1, 2, 3, 7, 8, 9, 10, 14, 20, 21, 23, 101, 103, 999))
    elif what == 2:
        tensor.tensor_content = r.randbytes(r.randrange(40))
    elif what == 3:
        del tensor.float_val[:]
        tensor.int_val.extend(r.choice(INTS[:9]) for _ in range(r.randrange(4)))
        tensor.string_val.extend(r.randbytes(3) for _ in range(r.randrange(3)))
    else:
        tensor.Clear()


def random_attr(attr: Any, r: random.Random, depth: int = 0) -> None:
    """Another value, of any kind."""
    attr.Clear()
    kind = r.randrange(12)
    if kind == 0:
        attr.i = r.choice(INTS)
    elif kind == 1:
        attr.f = r.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
    elif kind == 2:
        attr.b = r.random() < 0.5
    elif kind == 3:
        attr.s = r.choice((b"", b"SAME", b"\xff\xfe", b"x" * 1000, b"loc:@x", b"loc:@", b"NHWC", b"VALID"))
    elif kind == 4:
        attr.type = r.choice((0, 1, 2, 3, 4, 7, 8, 9, 10, 14, 20, 21, 23, 26, 101, 103, 107, 120, 999, -5))
    elif kind == 5:
        random_shape(attr.shape, r)
    elif kind == 6:
        attr.tensor.dtype = r.choice((1, 3, 7, 9, 10))
        random_tensor(attr.tensor, r)
    elif kind == 7:
        attr.placeholder = r.choice(("T", "", "nope"))
    elif kind == 8:
        attr.func.name = r.choice(FUNCTIONS)
        if depth < 3 and r.random() < 0.4:
            random_attr(attr.func.attr[r.choice(("T", "f", ""))], r, depth + 1)
    elif kind == 9:
        attr.list.SetInParent()
        for _ in range(r.randrange(4)):
            r.choice((lambda: attr.list.i.append(r.choice(INTS)), lambda: attr.list.type.append(r.choice((1, 3, 7, 20, 101, 999))),
                      lambda: attr.list.s.append(b"loc:@x"), lambda: attr.list.f.append(0.5), lambda: random_shape(attr.list.shape.add(), r),
                      lambda: random_tensor(attr.list.tensor.add(dtype=1), r)))()  # fmt: skip
    elif kind == 10 and depth < 40:
        inner = attr.func
        for _ in range(r.choice((1, 10, 25))):  # protobuf itself refuses messages that are nested about 100 deep
            inner.name = "Double"
            inner = inner.attr["f"].func
        inner.name = "x"
    # else: nothing is set


def _node(graph: Any, r: random.Random) -> Any:
    """A node, sometimes one of a function's body."""
    pools = [graph.node] * 4 + [f.node_def for f in graph.library.function]
    pools = [p for p in pools if len(p)]
    return r.choice(r.choice(pools)) if pools else graph.node.add(name="new", op="NoOp")


def _edge(graph: Any, r: random.Random) -> str:
    name = r.choice(graph.node).name if graph.node else "x"
    return r.choice((name, f"{name}:{r.choice((0, 1, 2, 10**12))}", f"^{name}", r.choice(NAMES)))


# -- structure ------------------------------------------------------------------------------------------------------------


def swap_op(g: Any, r: random.Random) -> None:
    node = _node(g, r)
    same = [name for name, op in OPS.items() if len(op.inputs) == len(node.input)]
    node.op = r.choice(same or list(OPS)) if r.random() < 0.7 else r.choice((r.choice(list(OPS)), "NoSuchOp", "", "Forever", "Double", "_Arg", "_Recv"))
    if r.random() < 0.5 and node.op in OPS:
        for name, attr in OPS[node.op].attrs.items():
            if name not in node.attr and attr.kind == "type":
                node.attr[name].type = r.choice((1, 1, 3, 9, 7, 10))
        for name in list(node.attr):
            if name not in OPS[node.op].attrs:
                del node.attr[name]


def rename(g: Any, r: random.Random) -> None:
    _node(g, r).name = r.choice((*NAMES, r.choice(g.node).name, "good/x", "new"))


def drop(g: Any, r: random.Random) -> None:
    if g.node:
        del g.node[r.randrange(len(g.node))]


def duplicate(g: Any, r: random.Random) -> None:
    node = g.node.add()
    node.CopyFrom(_node(g, r))
    if r.random() < 0.8:
        node.name += f"_again{r.randrange(1000)}"


def shuffle(g: Any, r: random.Random) -> None:
    nodes = list(g.node)
    r.shuffle(nodes)
    copies = protos.GraphDef()
    for node in nodes:
        copies.node.add().CopyFrom(node)
    del g.node[:]
    g.node.extend(copies.node)


def change_attr(g: Any, r: random.Random) -> None:
    node = _node(g, r)
    key = r.choice(list(node.attr)) if node.attr and r.random() < 0.9 else r.choice(("_class", "_output_shapes", "_gradient_op_type", "T", "N", "container"))
    random_attr(node.attr[key], r)


def change_scalar_attr(g: Any, r: random.Random) -> None:
    """Another value of the same kind, which is more likely to get past the checks."""
    node = _node(g, r)
    for key in r.sample(list(node.attr), len(node.attr)):
        attr = node.attr[key]
        kind = attr.WhichOneof("value")
        if kind == "i":
            attr.i = r.choice(INTS)
        elif kind == "type":
            attr.type = r.choice((1, 2, 3, 4, 7, 8, 9, 10, 14, 19, 20, 21, 22, 23))
        elif kind == "shape":
            random_shape(attr.shape, r)
        elif kind == "tensor":
            random_tensor(attr.tensor, r)
        elif kind == "b":
            attr.b = not attr.b
        elif kind == "f":
            attr.f = r.choice((0.0, -1.0, float("nan"), 1e38))
        elif kind == "s":
            attr.s = r.choice((b"", b"\xff", b"SAME", b"VALID", b"NCHW", b"UTF-8", b"while/while_context"))
        elif kind == "list" and attr.list.i:
            attr.list.i[r.randrange(len(attr.list.i))] = r.choice(INTS)
        else:
            continue
        return


def constant_value(g: Any, r: random.Random) -> None:
    """A constant takes absurd values: sizes, axes, indices."""
    constants = [n for n in g.node if n.op == "Const" and n.attr["value"].HasField("tensor")]
    if not constants:
        return
    tensor = r.choice(constants).attr["value"].tensor
    dtype, count = tensor.dtype, r.choice((0, 1, 1, 2, 3, 4))
    tensor.Clear()
    tensor.dtype = dtype
    if count != 1 or r.random() < 0.3:
        tensor.tensor_shape.dim.add(size=count)
    for _ in range(count):
        if dtype == 3:
            tensor.int_val.append(r.choice(INTS[:9]))
        elif dtype == 9:
            tensor.int64_val.append(r.choice(INTS))
        elif dtype == 1:
            tensor.float_val.append(r.choice((0.0, -1.5, float("nan"), float("inf"), 3e38)))
        elif dtype == 7:
            tensor.string_val.append(r.choice((b"", b"\xff", b"abc", b"(", b"1e400")))
        elif dtype == 10:
            tensor.bool_val.append(r.random() < 0.5)


def rewire(g: Any, r: random.Random) -> None:
    node = _node(g, r)
    edge = _edge(g, r)
    if node.input and r.random() < 0.7:
        node.input[r.randrange(len(node.input))] = edge
    else:
        node.input.append(edge)


def self_loop(g: Any, r: random.Random) -> None:
    node = _node(g, r)
    edge = r.choice((node.name, f"^{node.name}", f"{node.name}:1"))
    if node.input and r.random() < 0.5:
        node.input[r.randrange(len(node.input))] = edge
    else:
        node.input.append(edge)


def drop_input(g: Any, r: random.Random) -> None:
    node = _node(g, r)
    if node.input:
        del node.input[r.randrange(len(node.input))]


def control_cycle(g: Any, r: random.Random) -> None:
    if len(g.node) > 1:
        a, b = r.sample(range(len(g.node)), 2)
        g.node[a].input.append("^" + g.node[b].name)
        g.node[b].input.append("^" + g.node[a].name)


def back_edge(g: Any, r: random.Random) -> None:
    """A Merge or NextIteration where none belongs, or a Merge that reads something else than its own loop."""
    kinds = [n for n in g.node if n.op in ("Merge", "NextIteration", "Enter", "Exit", "Switch", "LoopCond")]
    if kinds and r.random() < 0.6:
        a, b = r.choice(kinds), r.choice(kinds)
        if a.input:
            a.input[r.randrange(len(a.input))] = b.name
        return
    source = r.choice(g.node).name if g.node else "x"
    node = g.node.add(name=f"loop{r.randrange(1000)}", op=r.choice(("Merge", "NextIteration", "Enter", "Exit", "LoopCond", "Switch")))
    node.input.extend([source] * (2 if node.op in ("Merge", "Switch") else 1))
    if node.op != "LoopCond":
        node.attr["T"].type = 1
    if node.op == "Merge":
        node.attr["N"].i = 2
    if node.op == "Enter":
        node.attr["frame_name"].s = r.choice((b"", b"f", b"while/while_context"))
    target = _node(g, r)
    if target.input:
        target.input[r.randrange(len(target.input))] = node.name


def loop_frame(g: Any, r: random.Random) -> None:
    enters = [n for n in g.node if "frame_name" in n.attr]
    if enters:
        node = r.choice(enters)
        node.attr["frame_name"].s = r.choice((b"", b"other", r.choice(enters).attr["frame_name"].s))
        node.attr["is_constant"].b = r.random() < 0.5
        node.attr["parallel_iterations"].i = r.choice(INTS)


def big_list(g: Any, r: random.Random) -> None:
    """An enormous N, with or without the inputs."""
    node = _node(g, r)
    for key in ("N", "num", "num_split", "num_outputs"):
        if key in node.attr:
            node.attr[key].i = r.choice((0, -1, 2**31, 2**40, 2**62, 1000))
            if r.random() < 0.3 and node.input:
                node.input.extend([node.input[0]] * 999)
            return


def change_device(g: Any, r: random.Random) -> None:
    _node(g, r).device = r.choice(DEVICES)


def change_function(g: Any, r: random.Random) -> None:
    if not g.library.function:
        function = g.library.function.add()
        function.signature.name = r.choice(("F", "AddV2", ""))
    function = r.choice(g.library.function)
    what = r.randrange(9)
    if what == 0 and function.ret:
        function.ret[r.choice(list(function.ret))] = r.choice(("x", "nope", "y:z:0", "y:z:7", "y:z:x", "", ":", "y", "second:out:0"))
    elif what == 1 and function.signature.input_arg:
        arg = r.choice(function.signature.input_arg)
        arg.name, arg.type = r.choice((arg.name, "", "y")), r.choice((0, 1, 3, 101, 999))
        arg.type_attr, arg.number_attr, arg.type_list_attr = (r.choice(("", "", "T", "nope")) for _ in range(3))
    elif what == 2:
        function.signature.output_arg.add(name=r.choice(("out", "new", "")), type=r.choice((0, 1, 3)))
    elif what == 3:
        attr = function.signature.attr.add(name=r.choice(("T", "N", "")), type=r.choice(("type", "int", "list(type)", "nonsense", "")))
        random_attr(attr.default_value, r) if r.random() < 0.5 else None
        random_attr(attr.allowed_values, r) if r.random() < 0.3 else None
    elif what == 4:
        function.signature.name = r.choice(("Double", "Twice", "AddV2", "Const", ""))
    elif what == 5:
        function.control_ret[r.choice(("c", ""))] = r.choice(("first", "nope", ""))
    elif what == 6:
        random_attr(function.attr[r.choice(("_noinline", "T", "_XlaMustCompile"))], r)
    elif what == 7:
        random_attr(function.arg_attr[r.choice((0, 1, 2**32 - 1))].attr[r.choice(("_output_shapes", "x"))], r)
    else:
        g.library.function.add().CopyFrom(function)


def nest_functions(g: Any, r: random.Random) -> None:
    """Functions that call each other many levels deep, perhaps in a circle."""
    depth = r.choice((3, 50, 400))
    for i in range(depth):
        function = g.library.function.add()
        function.signature.name = f"Level{i}"
        function.signature.input_arg.add(name="x", type=1)
        function.signature.output_arg.add(name="out", type=1)
        callee = f"Level{i + 1}" if i + 1 < depth else r.choice(("Neg", "Level0", "Nowhere"))
        node = function.node_def.add(name="y", op=callee, input=["x"])
        if callee == "Neg":
            node.attr["T"].type = 1
        function.ret["out"] = "y:y:0" if callee == "Neg" else "y:out:0"
    floats = [n.name for n in g.node if n.op == "Const" and n.attr["dtype"].type == 1]
    g.node.add(name="nested", op="Level0", input=floats[:1])


def change_versions(g: Any, r: random.Random) -> None:
    g.versions.producer = r.choice((0, 1, -1, 2**31 - 1, 21))
    g.versions.min_consumer = r.choice((0, -1, 2**31 - 1))
    if r.random() < 0.3:
        g.versions.bad_consumers.append(2474)


# -- ops with random inputs -------------------------------------------------------------------------------------------------

_TYPES = (1, 1, 1, 2, 3, 3, 3, 4, 6, 7, 8, 9, 9, 10, 10, 14, 17, 18, 19, 22, 23)
_VALUES = {
    1: (0.0, 1.0, -2.5, 0.5, 3.0, float("nan"), float("inf"), 1e38), 2: (0.0, 1.0, -2.5, float("nan"), 1e308), 3: (0, 1, 2, -1, 3, 2**31 - 1, -(2**31)),
    7: (b"", b"a", b"\xff", b"1.5", b"a b", b"(", b"NaN"), 9: (0, 1, 2, -1, 3, 2**63 - 1, -(2**63), 2**31), 10: (True, False),
    23: (0, 1, 2, 2**64 - 1), 22: (0, 1, 2**32 - 1), 8: (0.0, 1.0, -1.0), 18: (0.0, 2.0),
}  # fmt: skip


def random_constant(g: Any, dtype: int, r: random.Random) -> str:
    """A Const node with a small random value; its name."""
    name = f"c{len(g.node)}"
    node = g.node.add(name=name, op="Const")
    node.attr["dtype"].type = dtype
    tensor = node.attr["value"].tensor
    tensor.dtype = dtype
    tensor.tensor_shape.SetInParent()
    total = 1
    for size in r.choice(((), (), (1,), (2,), (3,), (4,), (0,), (2, 2), (2, 3), (1, 2), (4, 4), (2, 2, 3), (1, 4, 4, 2), (2, 3, 3, 1, 2), (0, 2), (3, 0))):
        tensor.tensor_shape.dim.add(size=size)
        total *= size
    pool = _VALUES.get(dtype, (0, 1, 2, 3))
    if r.random() < 0.8 and dtype != 7:
        pool = pool[:3]
    values = [r.choice(pool) for _ in range(total)]
    if dtype in (20, 21):
        return name  # an empty handle or variant
    if dtype == 7:
        tensor.string_val.extend(values)
    elif dtype == 10:
        tensor.bool_val.extend(values)
    elif dtype == 1:
        tensor.float_val.extend(values)
    elif dtype == 2:
        tensor.double_val.extend(values)
    elif dtype == 9:
        tensor.int64_val.extend(values)
    elif dtype in (8, 18):
        (tensor.scomplex_val if dtype == 8 else tensor.dcomplex_val).extend([v for pair in zip(values, values) for v in pair])
    elif dtype == 23:
        tensor.uint64_val.extend(values)
    elif dtype == 22:
        tensor.uint32_val.extend(values)
    elif dtype in (14, 19):
        tensor.half_val.extend([0x3C00 if v else 0 for v in values])
    else:
        tensor.int_val.extend(values)
    return name


def _random_declared_attr(attr: Any, declared: Any, r: random.Random) -> None:
    """A value of the declared kind."""
    kind = declared.kind
    base = kind[5:-1] if kind.startswith("list(") else kind
    many = kind.startswith("list(")
    count = r.choice((0, 1, 1, 2, 2, 4)) if many else 1
    target = attr.list if many else attr
    target.SetInParent()
    for _ in range(count):
        if base == "int":
            value: Any = r.choice((0, 1, 1, 2, 3, -1)) if r.random() < 0.85 else r.choice(INTS)
            field = "i"
        elif base == "float":
            value, field = r.choice((0.0, 0.5, 1.0, -1.0, float("nan"), float("inf"))), "f"
        elif base == "bool":
            value, field = r.random() < 0.5, "b"
        elif base == "type":
            allowed = [t.as_datatype_enum for t in declared.allowed] if declared.allowed else list(_TYPES)
            value, field = r.choice([t for t in allowed if t in _TYPES] or allowed), "type"
        elif base == "string":
            texts = sorted(declared.allowed) if declared.allowed else (b"", b"SAME", b"VALID", b"NHWC", b"x", b"\xff", b"a,b->ab", b"(", b"UTF-8")
            value, field = r.choice(texts), "s"
        elif base == "shape":
            random_shape(target.shape.add() if many else target.shape, r)
            continue
        elif base == "tensor":
            random_tensor(target.tensor.add() if many else target.tensor, r)
            continue
        else:
            (target.func.add() if many else target.func).name = r.choice(FUNCTIONS)
            continue
        getattr(target, field).append(value) if many else setattr(target, field, value)


def random_op(g: Any, name: str, r: random.Random) -> None:
    """A node of op `name` whose inputs have the right types, and nothing else is right."""
    op = OPS[name]
    attrs = protos.NodeDef().attr
    for key, declared in op.attrs.items():
        if declared.kind in ("type", "list(type)", "int", "list(int)") or r.random() < 0.6:
            _random_declared_attr(attrs[key], declared, r)
            if declared.kind == "int" and any(a.number_attr == key for a in (*op.inputs, *op.outputs)):
                attrs[key].i = r.choice((1, 1, 2, 2, 3))
    inputs = []
    for arg in op.inputs:
        if arg.list_attr:
            types = list(attrs[arg.list_attr].list.type)
        else:
            types = [attrs[arg.type_attr].type if arg.type_attr else arg.dtype.as_datatype_enum]
            types *= attrs[arg.number_attr].i if arg.number_attr else 1
        for t in types:
            inputs.append(_producer(g, t, arg.is_ref, r))
    node = g.node.add(name="subject", op=name, input=inputs)
    for key in attrs:
        node.attr[key].CopyFrom(attrs[key])


_RESOURCES = ("VarHandleOp", "FIFOQueueV2", "StackV2", "TensorArrayV3", "RandomShuffleQueueV2")


def _producer(g: Any, dtype: int, ref: bool, r: random.Random) -> str:
    """Something that gives a value of this type."""
    if ref:
        name = f"v{len(g.node)}"
        node = g.node.add(name=name, op="VariableV2")
        node.attr["dtype"].type = dtype
        for d in r.choice(((), (2,), (2, 2), (3, 2))):
            node.attr["shape"].shape.dim.add(size=d)
        node.attr["shape"].shape.SetInParent()
        if r.random() < 0.8:
            assign = g.node.add(name=name + "_init", op="Assign", input=[name, random_constant(g, dtype, r)])
            assign.attr["T"].type = dtype
            assign.attr["validate_shape"].b = False
            return assign.name
        return name
    if dtype == 20 and r.random() < 0.9:
        kind = r.choice(_RESOURCES)
        size = random_constant(g, 3, r) if kind in ("StackV2", "TensorArrayV3") else None
        node = g.node.add(name=f"r{len(g.node)}", op=kind, input=[size] if size else [])
        if kind == "VarHandleOp":
            node.attr["shape"].shape.dim.add(size=2)
            node.attr["shared_name"].s = b"v"
        if kind in ("VarHandleOp", "TensorArrayV3"):
            node.attr["dtype"].type = r.choice((1, 1, 3))
        elif kind == "StackV2":
            node.attr["elem_type"].type = 1
        else:
            node.attr["component_types"].list.type.append(1)
        return node.name
    if dtype == 21 and r.random() < 0.9:
        sizes = [random_constant(g, 3, r), random_constant(g, 3, r)]
        node = g.node.add(name=f"l{len(g.node)}", op=r.choice(("EmptyTensorList", "TensorListReserve")), input=sizes)
        node.attr["element_dtype"].type, node.attr["shape_type"].type = 1, 3
        return node.name
    return random_constant(g, dtype, r)


def splice(g: Any, other: Any, r: random.Random) -> None:
    """Nodes of another graph, names and all."""
    for node in r.sample(list(other.node), min(len(other.node), r.choice((1, 3, 30)))):
        g.node.add().CopyFrom(node)


MUTATIONS: tuple[Callable[[Any, random.Random], None], ...] = (
    swap_op, swap_op, swap_op, rename, drop, duplicate, shuffle, change_attr, change_attr, change_scalar_attr, change_scalar_attr,
    constant_value, constant_value, constant_value, rewire, rewire, self_loop, drop_input, control_cycle, back_edge, back_edge, loop_frame,
    big_list, change_device, change_function, change_function, nest_functions, change_versions,
)  # fmt: skip


def mutate(graph_def: Any, other: Any, r: random.Random) -> list[str]:
    """Applies a few mutations in place; their names."""
    applied = []
    for _ in range(r.choice((1, 1, 1, 2, 2, 3, 6))):
        if r.random() < 0.03:
            splice(graph_def, other, r)
            applied.append("splice")
            continue
        mutation = r.choice(MUTATIONS)
        mutation(graph_def, r)
        applied.append(mutation.__name__)
    return applied
