"""The names of things: tensors (`name:0`), control inputs (`^name`), devices, and rendezvous keys.

Devices are written `/job:worker/replica:0/task:1/device:GPU:0`, whole or in part; `DeviceSpec` is TF1's class for
them. A rendezvous key names one value that crosses from a device to another in one loop iteration.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from penstock.errors import InvalidArgumentError

# -- operations, scopes, tensors -----------------------------------------------------------------------------------

CONTROL_SLOT = -1
"""The output index that stands for a control edge."""

_OP_NAME = re.compile(r"^[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*$")
_SCOPE_NAME = re.compile(r"^[A-Za-z0-9_.\\/>-]*$")


def is_valid_op_name(name: str) -> bool:
    """True if an operation may be called this: letters, digits and `_.\\/>-`, not starting with `_`, `/`, `>`, `-`."""
    return _OP_NAME.fullmatch(name) is not None


def is_valid_scope_name(name: str) -> bool:
    """True if a nested name scope may be called this (at the root, scope names are op names)."""
    return _SCOPE_NAME.fullmatch(name) is not None


def check_op_name(name: str) -> str:
    """Returns the name, or raises ValueError as TF does."""
    if _OP_NAME.fullmatch(name) is None:
        raise ValueError(f"`{name}` is not a valid node name. Accepted names conform to Regex /{_OP_NAME}/")
    return name


def check_scope_name(name: str, at_root: bool = False) -> str:
    """Returns the scope name, or raises ValueError as TF does. At the root of a graph the rule is that of op names."""
    pattern, kind = (_OP_NAME, "root scope") if at_root else (_SCOPE_NAME, "scope")
    if pattern.fullmatch(name) is None:
        raise ValueError(
            f"'{name}' is not a valid {kind} name. A {kind} name has to match the following pattern: {pattern.pattern}"
        )
    return name


def parse_tensor_name(name: str) -> tuple[str, int]:
    """Splits a tensor or input name into operation name and output index, -1 for a control input.

    >>> parse_tensor_name("a/b"), parse_tensor_name("a/b:1"), parse_tensor_name("^a/b")
    (('a/b', 0), ('a/b', 1), ('a/b', -1))
    """
    if name[:1] == "^":
        return name[1:], CONTROL_SLOT
    head, colon, index = name.rpartition(":")
    if colon and head and index.isascii() and index.isdigit():
        return head, int(index)
    return name, 0


def parse_tensor_name_strictly(name: str) -> tuple[str, int]:
    """Splits `"op:index"`, where the index must be given, as in `tf.Graph.get_tensor_by_name`. ValueError otherwise."""
    parts = name.split(":")
    if len(parts) == 2 and parts[0] and parts[1].isascii() and parts[1].isdigit():
        return parts[0], int(parts[1])
    raise ValueError(
        f"The name {name!r} looks a like a Tensor name, but is not a valid one. Tensor names must be of the form "
        '"<op_name>:<output_index>".'
    )


def tensor_name(op_name: str, index: int) -> str:
    """The input string for an output: `name` for output 0, `name:1` for output 1, `^name` for control."""
    if index == 0:
        return op_name
    return f"^{op_name}" if index == CONTROL_SLOT else f"{op_name}:{index}"


def parse_function_input(name: str) -> tuple[str, str, int]:
    """Splits an input inside a FunctionDef, `node:output_arg:index`, into its parts.

    `^node` gives `("node", "", -1)`, and a bare name (a function argument) `("name", "", 0)`.
    """
    if name[:1] == "^":
        return name[1:], "", CONTROL_SLOT
    parts = name.split(":")
    if len(parts) == 1:
        return name, "", 0
    index = parts.pop() if parts[-1].isdigit() else "0"
    if len(parts) > 2:
        raise InvalidArgumentError(f"Malformed function input name: {name!r}; expected 'node:output:index'")
    return parts[0], parts[1] if len(parts) == 2 else "", int(index)


# -- devices -------------------------------------------------------------------------------------------------------

_SHORT_DEVICE_TYPES = frozenset({"CPU", "GPU", "TPU", "CUSTOM"})
"""Types that may stand without `device:` in front, as in `/gpu:0`."""


class _Parts(NamedTuple):
    """The fields of a device name; None means unspecified."""

    job: str | None
    replica: int | None
    task: int | None
    device_type: str | None
    device_index: int | None


_ANYWHERE = _Parts(None, None, None, None, None)


@lru_cache(maxsize=4096)
def _parse_device(spec: str) -> _Parts:
    fields: dict[str, Any] = {}

    def number(text: str) -> int:
        try:
            return int(text)
        except ValueError as error:
            raise ValueError(f"{error} while parsing the device spec: '{spec}'.") from None

    def set_device(kind: str, index: str) -> None:
        if "device_type" in fields:
            raise ValueError(f"Multiple device types are not allowed while parsing the device spec: {spec}.")
        fields["device_type"] = _device_type(kind)
        if index != "*":
            fields["device_index"] = number(index)

    for part in spec.split("/"):
        if not part:
            continue
        key, *values = part.split(":")
        if key == "job" and len(values) == 1:
            fields["job"] = values[0]
        elif key in ("replica", "task") and len(values) == 1:
            fields[key] = number(values[0])
        elif key.upper() in _SHORT_DEVICE_TYPES and len(values) <= 1:
            set_device(key.upper(), values[0] if values else "*")
        elif key == "device" and len(values) == 2:
            set_device(values[0], values[1])
        elif key:
            raise ValueError(f"Unknown attribute '{key}' is encountered while parsing the device spec: '{spec}'.")
    return _ANYWHERE._replace(**fields)


@lru_cache(maxsize=4096)
def _format_device(parts: _Parts) -> str:
    text = ""
    if parts.job is not None:
        text += f"/job:{parts.job}"
    if parts.replica is not None:
        text += f"/replica:{parts.replica}"
    if parts.task is not None:
        text += f"/task:{parts.task}"
    if parts.device_type is not None:
        text += f"/device:{parts.device_type}:{'*' if parts.device_index is None else parts.device_index}"
    return text


def _overlay(base: _Parts, over: _Parts) -> _Parts:
    """`base` with every field that `over` specifies replaced."""
    return _Parts._make(b if o is None else o for b, o in zip(base, over))


class DeviceSpec:
    """A device name, possibly partial: `DeviceSpec(job="ps", task=0, device_type="CPU", device_index=0)`.

    As in TF1 the fields can be assigned, and `merge_from` and `parse_from_string` change the object.
    """

    __slots__ = ("_parts",)

    def __init__(
        self,
        job: str | None = None,
        replica: int | None = None,
        task: int | None = None,
        device_type: str | None = None,
        device_index: int | None = None,
    ):
        self._parts = _Parts(
            None if job is None else str(job),
            None if replica is None else int(replica),
            None if task is None else int(task),
            _device_type(device_type),
            None if device_index is None else int(device_index),
        )

    @classmethod
    def _from_parts(cls, parts: _Parts) -> DeviceSpec:
        spec = cls.__new__(cls)
        spec._parts = parts
        return spec

    @classmethod
    def from_string(cls, spec: str) -> DeviceSpec:
        """Parses `"/job:ps/task:0/device:CPU:0"`, any part of it, or the short `"/gpu:1"`."""
        return cls._from_parts(_parse_device(spec or ""))

    def parse_from_string(self, spec: str) -> DeviceSpec:
        """Sets all fields from a string; what the string leaves out becomes unspecified. Returns self."""
        self._parts = _parse_device(spec or "")
        return self

    @property
    def job(self) -> str | None:
        return self._parts.job

    @job.setter
    def job(self, job: str | None) -> None:
        self._parts = self._parts._replace(job=None if job is None else str(job))

    @property
    def replica(self) -> int | None:
        return self._parts.replica

    @replica.setter
    def replica(self, replica: int | None) -> None:
        self._parts = self._parts._replace(replica=None if replica is None else int(replica))

    @property
    def task(self) -> int | None:
        return self._parts.task

    @task.setter
    def task(self, task: int | None) -> None:
        self._parts = self._parts._replace(task=None if task is None else int(task))

    @property
    def device_type(self) -> str | None:
        return self._parts.device_type

    @device_type.setter
    def device_type(self, device_type: str | None) -> None:
        self._parts = self._parts._replace(device_type=_device_type(device_type))

    @property
    def device_index(self) -> int | None:
        return self._parts.device_index

    @device_index.setter
    def device_index(self, device_index: int | None) -> None:
        self._parts = self._parts._replace(device_index=None if device_index is None else int(device_index))

    def to_string(self) -> str:
        """The canonical name: `"/job:ps/task:0/device:CPU:0"`; an open index is written `*`."""
        return _format_device(self._parts)

    def merge_from(self, dev: DeviceSpec) -> None:
        """Takes over every field that `dev` specifies."""
        self._parts = _overlay(self._parts, dev._parts)

    def make_merged_spec(self, dev: DeviceSpec) -> DeviceSpec:
        """A new spec: this one, with every field that `dev` specifies taken from it."""
        return type(self)._from_parts(_overlay(self._parts, dev._parts))

    def replace(self, **kwargs: Any) -> DeviceSpec:
        """A new spec with the given fields changed."""
        return type(self)(**{**self._parts._asdict(), **kwargs})

    def __eq__(self, other: object) -> Any:
        return isinstance(other, DeviceSpec) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    def __repr__(self) -> str:
        return f"<DeviceSpec({', '.join(f'{k}={v}' for k, v in self._parts._asdict().items())})>"

    def __reduce__(self):
        return DeviceSpec, tuple(self._parts)


def _device_type(name: str | None) -> str | None:
    if name is None:
        return None
    return name.upper() if name in ("cpu", "gpu") else str(name)


def _parts_of(device: Any) -> _Parts:
    if isinstance(device, DeviceSpec):
        return device._parts
    return _parse_device(device or "")


def canonical(device: Any) -> str:
    """The canonical string of a device name or DeviceSpec: `"/cpu:0"` -> `"/device:CPU:0"`; None and "" -> ""."""
    return _format_device(_parts_of(device))


def merge_device(spec: Any) -> Callable[[Any], str]:
    """A device function for `tf.device(spec)`: fills in what a node's own device leaves open.

    The function takes a device string or anything with a `.device` (an Operation or NodeDef). Device functions are
    applied from the innermost `tf.device` block outwards, so what is there already wins.
    """
    outer = _parts_of(spec)
    merged: dict[str, str] = {"": _format_device(outer)}

    def device_function(node: Any) -> str:
        inner = node if node is None or isinstance(node, (str, DeviceSpec)) else node.device
        # A DeviceSpec can change, so what is remembered is keyed by its string.
        key = inner.to_string() if isinstance(inner, DeviceSpec) else inner or ""
        result = merged.get(key)
        if result is None:
            result = merged[key] = _format_device(_overlay(outer, _parse_device(key)))
        return result

    return device_function


def full_name(spec: Any, default: Any = "/job:localhost/replica:0/task:0/device:CPU:0") -> str:
    """The canonical name of `spec` with every field that it leaves open taken from `default`."""
    return _format_device(_overlay(_parts_of(default), _parts_of(spec)))


def is_full_name(device: Any) -> bool:
    """True if every field, from job to device index, is specified."""
    return None not in _parts_of(device)


def matches(pattern: Any, device: Any) -> bool:
    """True if `device` has every field that `pattern` specifies. Both are names or DeviceSpecs."""
    return all(want is None or want == have for want, have in zip(_parts_of(pattern), _parts_of(device)))


def task_name(device: Any) -> str:
    """The part of a device name that says which process it belongs to: `"/job:ps/replica:0/task:1"`."""
    return _format_device(_parts_of(device)._replace(device_type=None, device_index=None))


# -- rendezvous keys -----------------------------------------------------------------------------------------------


class RendezvousKey(NamedTuple):
    """The parts of a rendezvous key."""

    src_device: str
    src_incarnation: int
    dst_device: str
    edge_name: str
    frame: int
    iter: int


def make_key(src: str, incarnation: int, dst: str, edge: str, frame: int = 0, iter: int = 0) -> str:
    """TF's rendezvous key: `src;incarnation as 16 hex digits;dst;edge;frame:iter`."""
    return f"{src};{incarnation & 0xFFFFFFFFFFFFFFFF:016x};{dst};{edge};{frame}:{iter}"


def parse_key(key: str) -> RendezvousKey:
    """Takes a rendezvous key apart. InvalidArgumentError if it is not one."""
    parts = key.split(";")
    if len(parts) == 5:
        src, incarnation, dst, edge, frame_iter = parts
        frame, colon, step = frame_iter.partition(":")
        try:
            if colon and src and dst and edge:
                return RendezvousKey(src, int(incarnation, 16), dst, edge, int(frame), int(step))
        except ValueError:
            pass
    raise InvalidArgumentError(f"Invalid  rendezvous key: {key}")
