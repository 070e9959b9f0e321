"""Devices: what a process can run kernels on, and how their names find them.

A `DeviceType` says what all devices of a kind have in common: which ops have kernels there, where arguments live, how a node's
kernel is bound, and how many devices a configuration asks for. Types are registered with a priority, which placement follows:
a type with a higher one is preferred. A `Device` is one of them, with its resources.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from penstock import errors, names
from penstock.graph.bind import Bound, bind
from penstock.graph.ir import Operation
from penstock.graph.opdef import OpDef
from penstock.runtime.resources import ResourceManager

HOST_MEMORY = "host"
DEVICE_MEMORY = "device"

LOCAL_TASK = "/job:localhost/replica:0/task:0"


class DeviceAttributes:
    """What a device tells about itself (TF's DeviceAttributes)."""

    __slots__ = ("device_type", "incarnation", "memory_limit", "name", "physical_device_desc")

    def __init__(
        self,
        name: str,
        device_type: str,
        memory_limit: int = 0,
        physical_device_desc: str = "",
        incarnation: int | None = None,
    ) -> None:
        self.name = name
        self.device_type = device_type
        self.memory_limit = memory_limit
        self.physical_device_desc = physical_device_desc
        # Random and never 0, so that a restarted process is never taken for its predecessor.
        self.incarnation = incarnation or secrets.randbelow((1 << 64) - 1) + 1

    def to_proto(self) -> Any:
        from penstock.formats.protos import DeviceAttributes as Proto

        return Proto(
            name=self.name,
            device_type=self.device_type,
            memory_limit=self.memory_limit,
            incarnation=self.incarnation,
            physical_device_desc=self.physical_device_desc,
            locality={},
        )

    def __repr__(self) -> str:
        return f"_DeviceAttributes({self.name}, {self.device_type}, {self.memory_limit}, {self.incarnation})"


class DeviceType:
    """A kind of device. CPU's behaviour is the default; other kinds override what differs."""

    name = "CPU"
    priority = 70
    memory_limit = 256 << 20  # what TF reports for every CPU
    meets_client = False  # whether it takes fed values and gives fetched ones itself, without a transfer from or to the client's device
    splits_memory = True  # whether edges between host and device memory become transfers; a CPU has only one memory

    def count(self, config: Any) -> int:
        """How many devices of this kind `config` (a ConfigProto or None) asks for, or the machine has."""
        wanted = getattr(config, "device_count", None)
        return wanted[self.name] if wanted and self.name in wanted else self.default_count()

    def default_count(self) -> int:
        return 1

    def create(self, config: Any, task: str) -> list[Device]:
        """The devices of this kind for one task."""
        found = []
        for i in range(self.count(config)):
            name = f"{task}/device:{self.name}:{i}"
            attributes = DeviceAttributes(name, self.name, self.memory_limit, self.physical_description(i))
            found.append(Device(name, self, attributes))
        return found

    def physical_description(self, index: int) -> str:
        return ""

    def has_kernel(self, opdef: OpDef) -> bool:
        """True if a node of this op can be placed here."""
        return opdef.has_kernel(self.name)

    def memory_types(self, opdef: OpDef) -> tuple[dict[str, str], dict[str, str]]:
        """Where each input and each output argument lives: in host memory or the device's own."""
        if self.name == "CPU":
            inputs = {arg.name: HOST_MEMORY for arg in opdef.inputs}
            return inputs, {arg.name: HOST_MEMORY for arg in opdef.outputs}

        def where(arg: Any) -> str:
            return HOST_MEMORY if arg.name in opdef.host_memory else DEVICE_MEMORY

        return {arg.name: where(arg) for arg in opdef.inputs}, {arg.name: where(arg) for arg in opdef.outputs}

    def bind(self, op: Operation, state: Callable[[str], SimpleNamespace] | None) -> Bound:
        """A node's kernel, tied to its attributes."""
        return bind(op, state)

    def offload(self, device: Device) -> Any:
        """The engine that computes most of a partition on such a device (`codegen.Offload`), or None: kernels do."""
        return None


class Device:
    """One device: `name`, `type` ("CPU"), `attributes`, `resources`, and its `kind` (the DeviceType)."""

    __slots__ = ("attributes", "kind", "name", "resources", "type")

    def __init__(
        self, name: str, kind: DeviceType, attributes: DeviceAttributes, resources: ResourceManager | None = None
    ) -> None:
        self.name = name
        self.kind = kind
        self.type = kind.name
        self.attributes = attributes
        self.resources = resources if resources is not None else ResourceManager()

    def has_kernel(self, opdef: OpDef) -> bool:
        return self.kind.has_kernel(opdef)

    def __repr__(self) -> str:
        return f"<Device {self.name}>"


_types: dict[str, DeviceType] = {}


def register_device_type(kind: DeviceType) -> DeviceType:
    """Adds a kind of device to those that `make_local_devices` creates; the higher priority wins if a name comes twice."""
    known = _types.get(kind.name)
    if known is None or kind.priority >= known.priority:
        _types[kind.name] = kind
    return kind


def device_types() -> list[DeviceType]:
    """All kinds, most preferred first."""
    return sorted(_types.values(), key=lambda kind: -kind.priority)


register_device_type(DeviceType())


def make_local_devices(config: Any = None, task: str = LOCAL_TASK) -> list[Device]:
    """The devices of this process, CPUs first, as `config.device_count` asks for."""
    import penstock.runtime.gpu  # noqa: F401  (registers its kind)

    cpu = _types["CPU"].create(config, task)
    if not cpu:
        raise errors.InvalidArgumentError(
            "No CPU devices are available in this process: device_count must ask for at least one CPU"
        )
    return cpu + [device for kind in device_types() if kind.name != "CPU" for device in kind.create(config, task)]


class DeviceSet:
    """Devices by name, whole or in part."""

    def __init__(self, devices: Iterable[Device] = ()) -> None:
        self.devices: list[Device] = []
        self._by_name: dict[str, Device] = {}
        for device in devices:
            self.add(device)

    def add(self, device: Device) -> None:
        if device.name in self._by_name:
            raise errors.AlreadyExistsError(f"There are two devices called {device.name}")
        self.devices.append(device)
        self._by_name[device.name] = device

    @property
    def client_device(self) -> Device:
        """Where the client's values live: the first device."""
        return self.devices[0]

    def find(self, name: str) -> Device | None:
        """The device of that name, or the only one that a partial name fits; None if there is none or more than one."""
        found = self._by_name.get(name)
        if found is not None:
            return found
        fitting = self.matching(name)
        return fitting[0] if len(fitting) == 1 else None

    def lookup(self, name: str) -> Device:
        """As `find`, but InvalidArgumentError in TF's words if no device fits, or several do."""
        found = self.find(name)
        if found is None:
            fitting = self.matching(name)
            if fitting:
                raise errors.InvalidArgumentError(f"{name} fits several devices: {', '.join(d.name for d in fitting)}")
            raise errors.InvalidArgumentError(
                f"{name} unknown device. Known devices: {', '.join(d.name for d in self.devices)}"
            )
        return found

    def matching(self, spec: str) -> list[Device]:
        """All devices that a partial name fits, most preferred kind first."""
        try:
            fitting = [d for d in self.devices if names.matches(spec, d.name)]
        except ValueError as error:
            raise errors.InvalidArgumentError(f"Malformed device specification '{spec}': {error}") from error
        return sorted(fitting, key=lambda d: -d.kind.priority)

    def types(self) -> list[DeviceType]:
        """The kinds that are there, most preferred first."""
        kinds = {d.type: d.kind for d in self.devices}
        return sorted(kinds.values(), key=lambda kind: -kind.priority)

    def __iter__(self) -> Iterator[Device]:
        return iter(self.devices)

    def __len__(self) -> int:
        return len(self.devices)
