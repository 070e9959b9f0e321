"""Tensor names, device names and rendezvous keys."""

import copy
import pickle
from types import SimpleNamespace

import pytest

from penstock import errors, names
from penstock.names import DeviceSpec

# -- operations and tensors


@pytest.mark.parametrize("name", ["a", "a/b", "a_b", ".a", "a>b", "a-b", "9", "A.b/c_1", "a\\b"])
def test_valid_op_names(name):
    assert names.is_valid_op_name(name) and names.is_valid_scope_name(name)
    assert names.check_op_name(name) == name
    assert names.check_scope_name(name, at_root=True) == name


@pytest.mark.parametrize("name", ["", "_a", "/a", ">a", "-a", "a b", "é", "a:0", "^a", "a\n"])
def test_invalid_op_names(name):
    assert not names.is_valid_op_name(name)
    with pytest.raises(ValueError, match="is not a valid node name. Accepted names conform to Regex"):
        names.check_op_name(name)
    with pytest.raises(ValueError, match="is not a valid root scope name. A root scope name has to match"):
        names.check_scope_name(name, at_root=True)


def test_nested_scopes_may_start_with_anything():
    for name in ("", "_a", "/a", "-a"):
        assert names.check_scope_name(name) == name
    with pytest.raises(ValueError, match="'a b' is not a valid scope name. A scope name has to match the following"):
        names.check_scope_name("a b")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a", ("a", 0)), ("a/b:1", ("a/b", 1)), ("^a/b", ("a/b", -1)), ("a:12", ("a", 12)), ("a:x", ("a:x", 0))]
    + [(":1", (":1", 0)), ("a:", ("a:", 0))],
)
def test_parse_tensor_name(name, expected):
    assert names.parse_tensor_name(name) == expected


def test_tensor_name_is_the_inverse():
    assert [names.tensor_name("a", i) for i in (0, 1, names.CONTROL_SLOT)] == ["a", "a:1", "^a"]


def test_parse_tensor_name_strictly():
    assert names.parse_tensor_name_strictly("a/b:1") == ("a/b", 1)
    for name in ("a", "a:x", "a:b:0", ":0", "a:", "a:-1"):
        with pytest.raises(ValueError, match='Tensor names must be of the form "<op_name>:<output_index>"'):
            names.parse_tensor_name_strictly(name)


def test_parse_function_input():
    assert names.parse_function_input("node:out:2") == ("node", "out", 2)
    assert names.parse_function_input("node:out") == ("node", "out", 0)
    assert names.parse_function_input("arg") == ("arg", "", 0)
    assert names.parse_function_input("^node") == ("node", "", -1)
    with pytest.raises(errors.InvalidArgumentError):
        names.parse_function_input("a:b:c:0")


# -- devices

FULL = "/job:x/replica:0/task:1/device:CPU:0"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("/", ""),
        (None, ""),
        (FULL, FULL),
        ("/cpu:0", "/device:CPU:0"),
        ("/gpu:*", "/device:GPU:*"),
        ("gpu", "/device:GPU:*"),
        ("/device:GPU:1", "/device:GPU:1"),
        ("/device:gpu:0", "/device:GPU:0"),
        ("/device:XLA_CPU:0", "/device:XLA_CPU:0"),
        ("/GPU:0/job:w", "/job:w/device:GPU:0"),
        ("/job:a//task:2", "/job:a/task:2"),
        ("/job:a/job:b", "/job:b"),
        ("/replica:007", "/replica:7"),
        ("/tpu:1", "/device:TPU:1"),
    ],
)
def test_device_strings(text, canonical):
    assert DeviceSpec.from_string(text).to_string() == canonical
    assert names.canonical(text) == canonical
    assert DeviceSpec(job="z", task=7).parse_from_string(text).to_string() == canonical
    assert DeviceSpec.from_string(canonical) == DeviceSpec.from_string(text)


def test_device_fields():
    spec = DeviceSpec.from_string(FULL)
    assert (spec.job, spec.replica, spec.task, spec.device_type, spec.device_index) == ("x", 0, 1, "CPU", 0)
    spec = DeviceSpec.from_string("/gpu:*")
    assert (spec.job, spec.replica, spec.task, spec.device_type, spec.device_index) == (None, None, None, "GPU", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/gpu:0/cpu:1", "Multiple device types are not allowed while parsing the device spec: /gpu:0/cpu:1."),
        ("/foo:0", "Unknown attribute 'foo' is encountered while parsing the device spec: '/foo:0'."),
        ("/device:CPU", "Unknown attribute 'device' is encountered"),
        ("/device:CPU:0:1", "Unknown attribute 'device' is encountered"),
        ("/job", "Unknown attribute 'job' is encountered"),
        ("/job:a:b", "Unknown attribute 'job' is encountered"),
        ("/task:x", "invalid literal for int() with base 10: 'x' while parsing the device spec: '/task:x'."),
        ("/task:*", "invalid literal for int() with base 10: '*'"),
        ("/gpu:", "invalid literal for int() with base 10: ''"),
    ],
)
def test_bad_device_strings(text, message):
    for parse in (DeviceSpec.from_string, DeviceSpec().parse_from_string, names.canonical):
        with pytest.raises(ValueError) as caught:
            parse(text)
        assert message in str(caught.value)


def test_device_constructor_and_setters():
    spec = DeviceSpec(job="ps", task="3", device_type="gpu")
    assert spec.to_string() == "/job:ps/task:3/device:GPU:*"
    spec.job, spec.replica, spec.task, spec.device_type, spec.device_index = "w", "1", 2, "cpu", 0
    assert spec.to_string() == "/job:w/replica:1/task:2/device:CPU:0"
    spec.job = spec.replica = spec.task = spec.device_type = None
    assert spec.to_string() == ""
    with pytest.raises(ValueError):
        DeviceSpec(task="x")
    with pytest.raises(AttributeError):
        spec.foo = 1


def test_device_merging():
    spec = DeviceSpec.from_string(FULL)
    merged = spec.make_merged_spec(DeviceSpec.from_string("/task:3/gpu:*"))
    assert merged.to_string() == "/job:x/replica:0/task:3/device:GPU:0" and spec.to_string() == FULL
    spec.merge_from(DeviceSpec(job="y"))
    assert spec.job == "y" and spec.task == 1
    assert spec.replace(job=None, task=9).to_string() == "/replica:0/task:9/device:CPU:0"
    assert spec.job == "y"
    with pytest.raises(TypeError):
        spec.replace(foo=1)


def test_device_equality_and_copies():
    a, b = DeviceSpec.from_string("/cpu:0"), DeviceSpec(device_type="CPU", device_index=0)
    assert a == b and hash(a) == hash(b) and a != DeviceSpec() and a != "/device:CPU:0"
    assert pickle.loads(pickle.dumps(a)) == a
    c = copy.copy(a)
    c.job = "x"
    assert a.job is None
    assert repr(a) == "<DeviceSpec(job=None, replica=None, task=None, device_type=CPU, device_index=0)>"


@pytest.mark.parametrize("as_spec", [str, DeviceSpec.from_string])
def test_merge_device_lets_the_inner_block_win(as_spec):
    function = names.merge_device(as_spec("/job:ps/task:0/cpu:0"))
    assert function("") == function(None) == "/job:ps/task:0/device:CPU:0"
    assert function("/task:1") == "/job:ps/task:1/device:CPU:0"
    assert function(SimpleNamespace(device="/gpu:1")) == "/job:ps/task:0/device:GPU:1"
    assert function(DeviceSpec(job="w")) == "/job:w/task:0/device:CPU:0"
    assert names.merge_device(None)("/cpu:0") == "/device:CPU:0"


def test_placement_helpers():
    local = "/job:localhost/replica:0/task:0/device:CPU:0"
    assert names.full_name("") == names.full_name(None) == local
    assert names.full_name("/gpu:1", local) == "/job:localhost/replica:0/task:0/device:GPU:1"
    assert names.full_name("/job:ps/task:2", local) == "/job:ps/replica:0/task:2/device:CPU:0"
    assert names.is_full_name(local) and not names.is_full_name("/job:a/cpu:0") and not names.is_full_name("")
    assert names.task_name(FULL) == "/job:x/replica:0/task:1"
    for pattern in ("", None, "/cpu:0", "/cpu:*", "/job:x", "/task:1/cpu", FULL, DeviceSpec(replica=0)):
        assert names.matches(pattern, FULL)
    for pattern in ("/gpu:0", "/cpu:1", "/job:y", "/task:0", DeviceSpec(replica=1)):
        assert not names.matches(pattern, FULL)


# -- rendezvous keys


def test_keys():
    src, dst = FULL, "/job:y/replica:0/task:0/device:GPU:0"
    key = names.make_key(src, 0xABC, dst, "edge_1_a", 0, 0)
    assert key == f"{src};0000000000000abc;{dst};edge_1_a;0:0"
    assert names.parse_key(key) == (src, 0xABC, dst, "edge_1_a", 0, 0)
    parsed = names.parse_key(names.make_key(src, 2**64 - 1, dst, "e", 7, 12))
    assert (parsed.src_incarnation, parsed.frame, parsed.iter) == (2**64 - 1, 7, 12)
    assert names.make_key(src, -1, dst, "e").split(";")[1] == "f" * 16


@pytest.mark.parametrize(
    "key",
    ["", "a;b", "a;0;b;e;0", "a;xyz;b;e;0:0", ";0;b;e;0:0", "a;0;;e;0:0", "a;0;b;;0:0", "a;0;b;e;0:x", "a;0;b;e;0:0;"],
)
def test_bad_keys(key):
    with pytest.raises(errors.InvalidArgumentError, match="Invalid  rendezvous key"):
        names.parse_key(key)
