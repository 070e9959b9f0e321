"""GPUs: devices whose partitions run through XLA, by way of JAX with CUDA.

A GPU's partition is generated code like a CPU's, but what has a rule for XLA is computed by compiled programs, and their results stay on the
device until a host kernel, a Send or the client asks for them. What has no rule, but belongs next to what has (control flow, random
numbers, stacks), runs on the host; values cross by themselves. Variables are there where they were last written.

GPUOptions: `visible_device_list` chooses and orders the devices, `per_process_gpu_memory_fraction` and `allow_growth` go to the allocator,
which reads them once in a process. CUDA_VISIBLE_DEVICES works as everywhere.

PENSTOCK_GPU_PLATFORM names another JAX platform to call GPU: with `cpu`, programs for GPUs can be tried where there is none.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from penstock import errors
from penstock.engines.xla import backend
from penstock.graph.bind import Bound
from penstock.graph.ir import Operation
from penstock.graph.opdef import OpDef
from penstock.ops.resources import Ref
from penstock.runtime.devices import Device, DeviceAttributes, DeviceType, register_device_type

_log = logging.getLogger("penstock.devices")

# What a GPU's partition may hold although it runs on the host.
_HOSTED_TEXT = """
    NoOp ControlTrigger Const HostConst Placeholder PlaceholderV2 PlaceholderWithDefault Switch RefSwitch Merge RefMerge Enter RefEnter Exit RefExit
    NextIteration RefNextIteration LoopCond _SwitchN VariableV2 Variable VarHandleOp _VarHandlesOp VarIsInitializedOp IsVariableInitialized
    DestroyResourceOp TemporaryVariable DestroyTemporaryVariable RandomUniform RandomStandardNormal TruncatedNormal RandomUniformInt
    ParameterizedTruncatedNormal Multinomial RandomShuffle RandomGamma RandomPoissonV2 _Arg _Retval _DeviceArg _DeviceRetval _Send _Recv _HostSend
    _HostRecv _Region Assert Where Unique UniqueV2 ListDiff DynamicPartition DynamicStitch CheckNumerics
    TensorArray TensorArrayV2 TensorArrayV3 TensorArrayGrad TensorArrayGradV2 TensorArrayGradV3 TensorArrayGradWithShape TensorArrayRead
    TensorArrayReadV2 TensorArrayReadV3 TensorArrayWrite TensorArrayWriteV2 TensorArrayWriteV3 TensorArrayGather TensorArrayGatherV2 TensorArrayGatherV3
    TensorArrayScatter TensorArrayScatterV2 TensorArrayScatterV3 TensorArrayConcat TensorArrayConcatV2 TensorArrayConcatV3 TensorArraySplit
    TensorArraySplitV2 TensorArraySplitV3 TensorArraySize TensorArraySizeV2 TensorArraySizeV3 TensorArrayClose TensorArrayCloseV2 TensorArrayCloseV3
    Stack StackV2 StackPush StackPushV2 StackPop StackPopV2 StackClose StackCloseV2 EmptyTensorList TensorListReserve TensorListPushBack
    TensorListPopBack TensorListStack TensorListFromTensor TensorListSetItem TensorListGetItem TensorListLength TensorListElementShape
    TensorListConcatV2 TensorListGather TensorListScatterV2 If StatelessIf Case StatelessCase While StatelessWhile PartitionedCall
    StatefulPartitionedCall SymbolicGradient
"""
HOSTED = frozenset(_HOSTED_TEXT.split())


class GpuDevice(Device):
    """A GPU; `jax_device` is JAX's object for it."""

    __slots__ = ("jax_device",)

    def __init__(self, name: str, kind: DeviceType, attributes: DeviceAttributes, jax_device: Any) -> None:
        super().__init__(name, kind, attributes)
        self.jax_device = jax_device


class GpuType(DeviceType):
    """See the module's docstring."""

    name = "GPU"
    priority = 210
    meets_client = True
    splits_memory = False  # values cross between host and device by themselves

    def default_count(self) -> int:
        return len(_found())

    def count(self, config: Any) -> int:
        wanted = getattr(config, "device_count", None)
        if wanted and self.name in wanted:
            return min(wanted[self.name], self.default_count()) if wanted[self.name] else 0
        return self.default_count()

    def create(self, config: Any, task: str) -> list[Device]:
        wanted = getattr(config, "device_count", None)
        if (wanted and self.name in wanted and not wanted[self.name]) or not _may_have_gpus():
            return []
        options = getattr(config, "gpu_options", None)
        if options is not None:
            _apply_options(options)
        devices = _visible(_found(), "" if options is None else options.visible_device_list)
        found: list[Device] = []
        for i, device in enumerate(devices[: self.count(config)]):
            name = f"{task}/device:GPU:{i}"
            attributes = DeviceAttributes(name, self.name, _memory_limit(device), _description(device))
            found.append(GpuDevice(name, self, attributes, device))
        return found

    def has_kernel(self, opdef: OpDef) -> bool:
        from penstock.engines.xla.rule import find_rule

        backend.start()
        return opdef.name in HOSTED or find_rule(opdef) is not None

    def bind(self, op: Operation, state: Callable[[str], SimpleNamespace] | None) -> Bound:
        """The CPU's kernel, with its inputs brought to the host."""
        bound = super().bind(op, state)
        if not op.inputs:
            return bound
        fn = _on_host(bound.fn)
        if state is not None and op.op_def.stateful:
            fn.state = state(op.name)  # type: ignore[attr-defined]  # programs draw from the same stream of random numbers
        return bound._replace(fn=fn)

    def offload(self, device: Device) -> Any:
        from penstock.engines.xla.offload import DeviceOffload

        assert isinstance(device, GpuDevice)
        return DeviceOffload(device.jax_device)


def _on_host(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return kernel(*[_host(a) for a in args])

    return call


def _host(value: Any) -> Any:
    if isinstance(value, Ref):
        if backend.is_device_array(value.value):
            with value.lock:
                if backend.is_device_array(value.value):
                    value.value = np.array(value.value)
        return value
    return backend.to_host(value)


# -- what there is --------------------------------------------------------------------------------------------------------

_devices: dict[str, list[Any]] = {}  # by platform
_applied: dict[str, str] = {}


def _platform() -> str:
    return os.environ.get("PENSTOCK_GPU_PLATFORM", "")


def _may_have_gpus() -> bool:
    """Whether it is worth importing JAX to look for GPUs."""
    if _platform():
        return backend.is_available()
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return False
    if not any(os.path.exists(p) for p in ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version", "/dev/dxg")):
        return False
    if not backend.is_available():
        _tell_once("An NVIDIA GPU seems to be here, but JAX is not installed, so that it is not used. Try: pip install 'penstock[gpu]'")
        return False
    return True


def _found() -> list[Any]:
    """JAX's devices, asked for once."""
    platform = _platform()
    found = _devices.get(platform)
    if found is None:
        found = []
        if _may_have_gpus():
            jax = backend.start()
            try:
                found = list(jax.local_devices(backend=platform or "gpu"))
            except RuntimeError as error:
                _tell_once(f"No GPU is used: {str(error).splitlines()[0]}")
        _devices[platform] = found
    return found


def _tell_once(text: str) -> None:
    if text not in _told:
        _told.add(text)
        _log.warning("%s", text)


_told: set[str] = set()


def _visible(devices: list[Any], text: str) -> list[Any]:
    """The devices that `visible_device_list` ("1,0") names, in its order; InvalidArgumentError in TF's words for others."""
    if not text.strip():
        return devices
    chosen = []
    for part in text.split(","):
        try:
            index = int(part)
        except ValueError:
            raise errors.InvalidArgumentError(f"Could not parse entry in 'visible_device_list': '{part}'. visible_device_list = {text}") from None
        if not 0 <= index < len(devices):
            raise errors.InvalidArgumentError(
                f"'visible_device_list' listed an invalid GPU id '{index}' but visible device count is {len(devices)}"
            )
        if devices[index] in chosen:
            raise errors.InvalidArgumentError(f"visible_device_list contained a duplicate entry: {text}")
        chosen.append(devices[index])
    return chosen


def _apply_options(options: Any) -> None:
    """Memory options, for XLA's allocator. It reads them when it starts; a session that comes later with others cannot change it."""
    wishes: dict[str, str] = {}
    if options.allow_growth:
        wishes["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    fraction = options.per_process_gpu_memory_fraction
    if fraction > 0:
        wishes["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{min(fraction, 1.0):g}"
    known = _devices.get(_platform())
    for name, value in wishes.items():
        if known is None:
            os.environ.setdefault(name, value)
            _applied[name] = value
        elif known and _applied.get(name, os.environ.get(name)) != value:
            _tell_once(f"GPUOptions ask for {name}={value}, but the GPU's allocator is at work already; the first session's options hold")
    if backend.is_deterministic() and known is None and "xla_gpu_deterministic_ops" not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".strip()


def _memory_limit(device: Any) -> int:
    try:
        stats = device.memory_stats() or {}
    except Exception:
        stats = {}
    return int(stats.get("bytes_limit", 0))


def _description(device: Any) -> str:
    text = f"device: {device.id}, name: {device.device_kind}"
    capability = getattr(device, "compute_capability", None)
    return text if capability is None else f"{text}, compute capability: {capability}"


register_device_type(GpuType())
