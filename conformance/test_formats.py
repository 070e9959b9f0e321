"""Our messages, tensors and attributes against an installed TensorFlow: same descriptors, same bytes, same errors."""

from __future__ import annotations

import glob
import importlib
import os
import random
import re
import sys
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow").compat.v1

from google.protobuf import message_factory, text_format, unknown_fields  # noqa: E402
from google.protobuf.descriptor import FieldDescriptor as F  # noqa: E402
from tensorflow.python.framework import dtypes as tf_dtypes  # noqa: E402
from tensorflow.python.framework import tensor_util  # noqa: E402

from penstock import dtypes, errors, shapes  # noqa: E402
from penstock.formats import attr_value, protos, tensor_proto  # noqa: E402

# -- descriptors -------------------------------------------------------------------------------------------------

PROTO_FOLDER = Path(protos.__file__).parent / "proto"
MODULES = sorted(path.stem for path in PROTO_FOLDER.glob("*.proto"))
# What TF's Python package has no messages for: master.proto and worker.proto exist only in C++. A live server checks
# those below.
NOT_IN_PYTHON = {"cluster"}


def our_files():
    return [importlib.import_module(f"penstock.formats.proto.{name}_pb2").DESCRIPTOR for name in MODULES]


@pytest.fixture(scope="session")
def tf_messages():
    """TF's descriptors by full name, out of every *_pb2 module that it ships."""
    root = os.path.dirname(os.path.dirname(sys.modules["tensorflow"].__file__)) + "/tensorflow"
    for path in glob.glob(root + "/**/*_pb2.py", recursive=True):
        importlib.import_module("tensorflow." + os.path.relpath(path, root)[:-3].replace("/", "."))
    found = {}
    for name, module in list(sys.modules.items()):
        if name.endswith("_pb2") and hasattr(module, "DESCRIPTOR") and "penstock" not in name:
            for item in module.DESCRIPTOR.enum_types_by_name.values():
                found[item.full_name] = item
            for item in module.DESCRIPTOR.message_types_by_name.values():
                found.update(walk(item))
    return found


def walk(message):
    found = {message.full_name: message}
    for enum in message.enum_types:
        found[enum.full_name] = enum
    for nested in message.nested_types:
        found.update(walk(nested))
    return found


def tf_name(full_name):
    return re.sub(r"^penstock\.", "tensorflow.", full_name)


def describe(item):
    """What decides about the wire and the Python interface of a message or enum."""
    if hasattr(item, "values"):
        return sorted((v.name, v.number) for v in item.values)
    rows = []
    for f in item.fields:
        target = f.message_type or f.enum_type
        oneof = f.containing_oneof.name if f.containing_oneof else None
        repeated = f.is_repeated if hasattr(f, "is_repeated") else f.label == F.LABEL_REPEATED
        packed = f.is_packed if hasattr(f, "is_packed") else None
        rows.append(
            (f.number, f.name, f.type, repeated, packed, f.has_presence, oneof, target and tf_name(target.full_name))
        )
    return sorted(rows)


def ours():
    found = {}
    for file in our_files():
        for enum in file.enum_types_by_name.values():
            found[enum.full_name] = enum
        for message in file.message_types_by_name.values():
            found.update(walk(message))
    return found


def test_every_message_is_described_as_in_tensorflow(tf_messages):
    compared = 0
    missing = []
    for name, item in ours().items():
        theirs = tf_messages.get(tf_name(name))
        if theirs is None:
            missing.append(item)
            continue
        compared += 1
        assert describe(item) == describe(theirs), name
    assert {os.path.basename(i.file.name)[:-6] for i in missing} == NOT_IN_PYTHON
    assert compared > 250


def test_no_message_of_a_covered_file_is_left_out(tf_messages):
    mine = {tf_name(n) for n in ours()}
    covered = {tf_messages[n].file.name for n in mine if n in tf_messages}
    covered.discard("tensorflow/core/framework/model.proto")  # only the enum that data.Options needs
    left_out = [n for n, item in tf_messages.items() if item.file.name in covered and n not in mine]
    assert left_out == []


# -- bytes -------------------------------------------------------------------------------------------------------

SCALARS = {
    F.TYPE_STRING: lambda r: "s" + "é" * r.randrange(3) + str(r.random()),
    F.TYPE_BYTES: lambda r: r.randbytes(r.randrange(6)),
    F.TYPE_BOOL: lambda r: r.random() < 0.5,
    F.TYPE_FLOAT: lambda r: float(np.float32(r.gauss(0, 1e3))),
    F.TYPE_DOUBLE: lambda r: r.gauss(0, 1e9),
    F.TYPE_INT32: lambda r: r.choice([0, 1, -1, 2**31 - 1, -(2**31), r.randrange(1000)]),
    F.TYPE_INT64: lambda r: r.choice([0, 1, -1, 2**63 - 1, -(2**63), r.randrange(10**12)]),
    F.TYPE_SINT64: lambda r: r.choice([0, 1, -1, 2**63 - 1, -(2**63)]),
    F.TYPE_UINT32: lambda r: r.choice([0, 2**32 - 1, r.randrange(1000)]),
    F.TYPE_UINT64: lambda r: r.choice([0, 2**64 - 1, r.randrange(1000)]),
    F.TYPE_FIXED32: lambda r: r.choice([0, 2**32 - 1]),
    F.TYPE_FIXED64: lambda r: r.choice([0, 2**64 - 1]),
}


def scalar(field, r):
    if field.type == F.TYPE_ENUM:
        return r.choice(field.enum_type.values).number
    return SCALARS[field.type](r)


def fill_randomly(message, r, depth=3):
    for field in message.DESCRIPTOR.fields:
        if r.random() < 0.3:
            continue
        repeated = field.is_repeated if hasattr(field, "is_repeated") else field.label == F.LABEL_REPEATED
        target = field.message_type
        if target is not None and target.GetOptions().map_entry:
            if depth == 0:
                continue
            entry = getattr(message, field.name)
            value_field = target.fields_by_name["value"]
            for _ in range(r.randrange(3)):
                key = scalar(target.fields_by_name["key"], r)
                if value_field.message_type is None:
                    entry[key] = scalar(value_field, r)
                else:
                    fill_randomly(entry[key], r, depth - 1)
        elif target is not None:
            if depth == 0:
                continue
            for _ in range(r.randrange(3) if repeated else 1):
                child = getattr(message, field.name)
                child = child.add() if repeated else child
                child.SetInParent() if not repeated else None
                fill_randomly(child, r, depth - 1)
        elif repeated:
            getattr(message, field.name).extend([scalar(field, r) for _ in range(r.randrange(4))])
        else:
            setattr(message, field.name, scalar(field, r))


def top_level_classes():
    for file in our_files():
        module = importlib.import_module("penstock.formats.proto." + os.path.basename(file.name)[:-6] + "_pb2")
        for name in file.message_types_by_name:
            yield getattr(module, name)


def test_bytes_pass_both_ways_for_every_message(tf_messages):
    r = random.Random(7)
    seen = 0
    for cls in top_level_classes():
        theirs = tf_messages.get(tf_name(cls.DESCRIPTOR.full_name))
        if theirs is None:
            continue
        tf_cls = message_factory.GetMessageClass(theirs)
        for _ in range(4):
            seen += 1
            mine = cls()
            fill_randomly(mine, r)
            data = mine.SerializeToString(deterministic=True)
            other = tf_cls.FromString(data)
            assert other.SerializeToString(deterministic=True) == data, cls
            assert text_format.MessageToString(other) == text_format.MessageToString(mine), cls
            assert not list(unknown_fields.UnknownFieldSet(other)), cls
            other = tf_cls()
            fill_randomly(other, r)
            data = other.SerializeToString(deterministic=True)
            assert text_format.MessageToString(cls.FromString(data)) == text_format.MessageToString(other), cls
    assert seen > 400


def test_a_live_server_understands_the_cluster_messages():
    grpc = pytest.importorskip("grpc")
    server = tf.train.Server.create_local_server()
    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, [2], name="x")
        tf.multiply(x, 2.0, name="y")
    graph_def = protos.coerce(graph.as_graph_def(), protos.GraphDef)
    with grpc.insecure_channel(server.target.removeprefix("grpc://")) as channel:

        def call(service, method, request):
            request_cls, response_cls = protos.service_methods(service)[method]
            assert isinstance(request, request_cls)
            stub = channel.unary_unary(
                f"/tensorflow.{service}/{method}",
                request_serializer=request_cls.SerializeToString,
                response_deserializer=response_cls.FromString,
            )
            return stub(request, timeout=60)

        status = call("WorkerService", "GetStatus", protos.GetStatusRequest())
        assert status.device_attributes[0].device_type == "CPU" and status.device_attributes[0].incarnation
        session = call(
            "MasterService", "CreateSession", protos.CreateSessionRequest(graph_def=graph_def)
        ).session_handle
        feed = protos.NamedTensorProto(name="x:0", tensor=tensor_proto.from_array(np.float32([1, 2]), raw=True))
        options = protos.RunOptions(trace_level=protos.RunOptions.FULL_TRACE)
        step = protos.RunStepRequest(session_handle=session, feed=[feed], fetch=["y:0"], options=options, request_id=7)
        answer = call("MasterService", "RunStep", step)
        assert tensor_proto.to_array(answer.tensor[0].tensor).tolist() == [2.0, 4.0]
        assert answer.metadata.step_stats.dev_stats[0].node_stats
        signature = protos.CallableOptions(feed=["x:0"], fetch=["y:0"])
        made = call(
            "MasterService", "MakeCallable", protos.MakeCallableRequest(session_handle=session, options=signature)
        )
        run = protos.RunCallableRequest(session_handle=session, handle=made.handle, feed=[feed.tensor])
        assert tensor_proto.to_array(call("MasterService", "RunCallable", run).fetch[0]).tolist() == [2.0, 4.0]
        devices = call("MasterService", "ListDevices", protos.ListDevicesRequest(session_handle=session))
        assert devices.local_device[0].name.endswith("CPU:0")
        call("MasterService", "CloseSession", protos.CloseSessionRequest(session_handle=session))


# -- tensors -----------------------------------------------------------------------------------------------------

FIXED_SIZE = [t for t in dtypes.ALL_DTYPES if not t.np.hasobject]


def run_const(proto):
    """The value of a Const node with this tensor, from TF's own runtime."""
    theirs = tf.make_tensor_proto(0).FromString(proto.SerializeToString())
    graph_def = tf.GraphDef()
    node = graph_def.node.add(name="c", op="Const")
    node.attr["dtype"].type = theirs.dtype
    node.attr["value"].tensor.CopyFrom(theirs)
    with tf.Graph().as_default():
        (c,) = tf.import_graph_def(graph_def, return_elements=["c:0"], name="")
        with tf.Session() as session:
            return np.asarray(session.run(c))


def same(a, b):
    assert a.shape == b.shape
    if a.dtype.hasobject or b.dtype.kind == "S":
        assert a.tolist() == b.tolist()
    elif a.dtype in (ml_dtypes.int4, ml_dtypes.int2):  # the unused bits are free
        assert a.dtype == b.dtype and a.tolist() == b.tolist()
    else:
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", FIXED_SIZE, ids=lambda t: t.name)
def test_every_type_is_written_and_read_as_by_tensorflow(dtype):
    r = np.random.default_rng(3)
    for shape in [(), (1,), (5,), (2, 3), (0, 2)]:
        array = (r.normal(size=shape) * 3).astype(dtype.np)
        mine = tensor_proto.make_tensor_proto(array, dtype)
        if array.size < 2 and "fnuz" in dtype.name:  # TF's Python has no way to write these, its runtime reads them
            same(run_const(mine), array)
            continue
        theirs = tensor_util.make_tensor_proto(array, tf_dtypes.as_dtype(dtype.name))
        assert mine.SerializeToString() == theirs.SerializeToString()
        assert tensor_proto.from_array(array, dtype).SerializeToString() == theirs.SerializeToString()
        same(tensor_proto.to_array(theirs), array)
        same(run_const(tensor_proto.from_array(array, dtype, raw=True)), array)
        np.testing.assert_array_equal(tensor_proto.make_ndarray(mine), tf.make_ndarray(theirs))


TEXTS = [
    "dtype: DT_INT32 tensor_shape{dim{size:4}} int_val:[1,2]",
    "dtype: DT_INT32 tensor_shape{dim{size:2}} int_val:[1,2,3]",
    "dtype: DT_INT32 tensor_shape{dim{size:3}}",
    "dtype: DT_FLOAT tensor_shape{} float_val:[1,2]",
    "dtype: DT_STRING tensor_shape{dim{size:3}}",
    'dtype: DT_STRING tensor_shape{dim{size:3}} string_val:["a","b"]',
    'dtype: DT_STRING tensor_shape{dim{size:1}} string_val:["a","b"]',
    'dtype: DT_STRING tensor_shape{dim{size:2}} tensor_content:"\\001\\002abc"',
    "dtype: DT_INT32 tensor_shape{unknown_rank:true} int_val:[1]",
    "dtype: DT_BOOL tensor_shape{dim{size:3}} bool_val:[true]",
    "dtype: DT_HALF tensor_shape{dim{size:2}} half_val:[15360]",
    "dtype: DT_HALF tensor_shape{dim{size:1}} half_val:[80896]",
    "dtype: DT_BFLOAT16 tensor_shape{dim{size:3}} half_val:[16256,16384]",
    "dtype: DT_INT8 tensor_shape{dim{size:1}} int_val:[300]",
    "dtype: DT_UINT8 tensor_shape{dim{size:1}} int_val:[-1]",
    "dtype: DT_INT4 tensor_shape{dim{size:3}} int_val:[9,-8,7]",
    "dtype: DT_UINT2 tensor_shape{dim{size:2}} int_val:[1,3]",
    'dtype: DT_FLOAT8_E5M2 tensor_shape{dim{size:3}} float8_val:"\\074\\100"',
    'dtype: DT_FLOAT4_E2M1FN tensor_shape{dim{size:2}} float8_val:"\\001\\002"',
    "dtype: DT_FLOAT8_E4M3FN tensor_shape{dim{size:2}}",
    "dtype: DT_COMPLEX64 tensor_shape{dim{size:3}} scomplex_val:[1,2,3,4]",
    "dtype: DT_COMPLEX64 tensor_shape{dim{size:2}} scomplex_val:[1,2,3]",
    "dtype: DT_COMPLEX128 tensor_shape{dim{size:2}} dcomplex_val:[1,2]",
    "dtype: DT_QINT32 tensor_shape{dim{size:3}} int_val:[1,-2]",
    "dtype: DT_QUINT16 tensor_shape{dim{size:2}} int_val:[65535,2]",
    "dtype: DT_UINT64 tensor_shape{dim{size:2}} uint64_val:[18446744073709551615]",
    "dtype: DT_INT32 tensor_shape{dim{size:2}} float_val:[1,2]",
    'dtype: DT_INT32 tensor_shape{dim{size:1}} int_val:[1] tensor_content:"aaaa"',
    "dtype: DT_INT32 tensor_shape{dim{size:0}} int_val:[1]",
    'dtype: DT_INT32 tensor_shape{dim{size:0}} tensor_content:"aaaa"',
]


@pytest.mark.parametrize("text", TEXTS)
def test_odd_encodings_are_read_as_by_the_runtime(text):
    proto = text_format.Parse(text, protos.TensorProto())
    same(tensor_proto.to_array(proto), run_const(proto))


@pytest.mark.parametrize(
    "text",
    [
        'dtype: DT_INT32 tensor_shape{dim{size:2}} tensor_content:"abc"',
        'dtype: DT_INT32 tensor_shape{dim{size:1}} tensor_content:"abcdefgh"',
        "dtype: DT_FLOAT tensor_shape{dim{size:4611686018427387904}} float_val:1",
        "dtype: DT_INT32 tensor_shape{dim{size:-1}} int_val:[1,2]",
    ],
)
def test_what_the_runtime_refuses_is_refused(text):
    proto = text_format.Parse(text, protos.TensorProto())
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        run_const(proto)
    with pytest.raises(errors.InvalidArgumentError, match="Cannot parse tensor from proto"):
        tensor_proto.to_array(proto)


class ArrayLike:
    def __array__(self, dtype=None, copy=None):
        return np.arange(3.0)


class Opaque:
    def __repr__(self):
        return "Opaque()"


def value_cases(D, S):
    """(values, dtype, keyword arguments), with the package's own types."""
    scalars = [1, 1.5, True, "a", b"a", "é", 1j, 2**31 - 1, 2**31, -(2**31), 2**63, 2**64, float("nan"), None]
    types = [D.float32, D.int32, D.int64, D.uint8, D.bool, D.string, D.complex64, D.float16, D.bfloat16, D.uint64]
    cases = [(v, t, {}) for v in scalars for t in [None, *types]]
    lists = [
        [1, 2.5], [1, True], [True, 1.5], [1, 2**40], [1, "a"], ["a", 1], ["a", b"b"], [], [[]], [[], []], [[1, 2], [3]],
        [[1, 2], 3], [None], [1, None], (1, 2), (1, (2, 3)), [[1, 2], [3, 4]], [["a", "bb"], ["c", "d"]],
        [[b"a"], ["b", "c"]], ["a\0", b"b\0"], [300, -1], [1, 2**63], [1, 2j], [Opaque()], [np.float32(1)], [np.float64(1)],
        [np.int64(1)], [np.int8(1)], [np.float16(1)], [np.str_("a")], [np.array([1, 2]), np.array([3, 4])],
        [np.array(1), np.array(2)], [np.array(1.5)], [np.array(1), 2], [S.Dimension(3), 4],
    ]  # fmt: skip
    cases += [(v, t, {}) for v in lists for t in [None, D.float32, D.int32, D.string, D.bool, D.complex128]]
    arrays = [
        np.float64(1.5), np.int64(3), np.bool_(True), np.array([1.5, 2.5]), np.array([1, 2]), np.array(["a", "bc"]),
        np.array([b"a", b"bc"]), np.array(["a", b"b"], object), np.array(["a", 1], object), np.array([1, 2], object),
        np.array(["1", "2"]), np.array([1 + 2j]), np.array([True, False]), np.arange(4).reshape(2, 2).T, np.zeros((0, 3)),
        np.array(5), np.array([1.5], ml_dtypes.bfloat16), np.array([1], ml_dtypes.int4), np.longdouble(1.5),
        np.array([(1,), (2,)], D.qint8.as_numpy_dtype), np.array([1, 2], np.int8), np.datetime64("2020"),
    ]  # fmt: skip
    cases += [(v, t, {}) for v in arrays for t in [None, D.float32, D.int32, D.string, D.bool]]
    cases += [
        (v, t, {})
        for v, t in [
            (range(3), None), ({1}, None), ({"a": 1}, None), (Opaque(), None), (Opaque(), D.int32), (ArrayLike(), None),
            (ArrayLike(), D.int32), (bytearray(b"ab"), None), (S.TensorShape([1, 2]), None), (S.Dimension(3), D.int64),
            (1, D.resource), (1, D.variant), (1, D.float32._as_ref), (1, "float32"), (1, np.float32), (1, float), (1, int),
            (1, "nope"), (1, 1), (1, D.qint8), ([1, 2], D.qint8), ([(1,), (2,)], D.qint8), ((1,), D.quint8),
            ([(1, 2)], D.qint8), ([[(1,)], [(2,)]], D.qint32), (9, D.int4), ([1, -8], D.int4), ([1.5, 2], D.float8_e5m2),
            (1.5, D.float8_e4m3fn), (70000, D.float16), (1e40, D.float32), ([-1, 2**63], D.int64),
        ]
    ]  # fmt: skip
    for values in (
        1,
        [1],
        [1, 2],
        [1, 2, 3, 4],
        [],
        "a",
        ["a", "b"],
        np.array(5),
        np.array([1, 2]),
        np.array([[1, 2]]),
    ):
        for shape in ([2, 2], [2], [0], [], [3], (2, 1), [-1], np.array([2, 2]), [2.0], S.TensorShape([2]), 3, [None]):
            for how in ({}, {"verify_shape": True}, {"allow_broadcast": True}):
                cases.append((values, None, {"shape": shape, **how}))
    return cases


def outcome(function, *args, **kwargs):
    try:
        return function(*args, **kwargs).SerializeToString(deterministic=True)
    except Exception as error:
        return type(error), str(error)


def test_python_values_become_the_same_protos_or_errors():
    mine = value_cases(dtypes, shapes)
    theirs = value_cases(tf_dtypes, tf)
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for (v, t, k), (tv, tt, tk) in zip(mine, theirs, strict=True):
            a = outcome(tensor_proto.make_tensor_proto, v, t, **k)
            b = outcome(tensor_util.make_tensor_proto, tv, tt, **tk)
            if a != b:
                wrong.append(f"{v!r} {t} {k}\n   ours: {a}\n   TF:   {b}")
            elif isinstance(a, bytes):
                same(tensor_proto.convert_values(v, t, **k), tensor_proto.to_array(protos.TensorProto.FromString(a)))
    assert not wrong, f"{len(wrong)} of {len(mine)} differ:\n" + "\n".join(wrong)


# -- attributes --------------------------------------------------------------------------------------------------


def test_attributes_of_a_real_graph_survive():
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 3], name="x")
        w = tf.get_variable("w", [3, 4], initializer=tf.random_normal_initializer())
        y = tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, tf.tanh(s)), [0, tf.matmul(x, w)])[1]
        tf.gradients(tf.reduce_sum(y), [w])
        tf.constant([[b"a", b"b"]], name="strings")
        tf.FIFOQueue(3, [tf.int32, tf.string], [[], [2]])
        tf.strided_slice(y, [0, 0], [1, 2])
        graph_def = graph.as_graph_def()
    for node in graph_def.node:
        for name, value in node.attr.items():
            python = attr_value.decode(protos.coerce(value, protos.AttrValue))
            again = attr_value.encode(python, attr_value.kind_of(value) if value.list.ListFields() else None)
            assert again.SerializeToString(deterministic=True) == value.SerializeToString(deterministic=True), (
                node,
                name,
            )
