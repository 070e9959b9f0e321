"""`tf.config`: which devices there are, and settings of the sessions that are made later without a config of their own.

The settings are kept as a ConfigProto (`session/default_config.py`); docs/config.md says what each field does. What concerns
eager execution only is answered as TF1 would, where there is an answer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock import errors
from penstock.ops.kernels.threads import require_determinism
from penstock.session import default_config


class PhysicalDevice(NamedTuple):
    """A device of this machine."""

    name: str
    device_type: str


class LogicalDevice(NamedTuple):
    """A device that a session offers."""

    name: str
    device_type: str


class LogicalDeviceConfiguration(NamedTuple):
    """One of the logical devices that a physical device is split into."""

    memory_limit: int | None = None
    experimental_priority: int | None = None
    experimental_device_ordinal: int | None = None


_visible: dict[str, list[PhysicalDevice]] = {}
_logical: dict[PhysicalDevice, list[LogicalDeviceConfiguration]] = {}
_growth: dict[PhysicalDevice, bool] = {}
_flags: dict[str, Any] = {"tf32": True}

# -- devices ----------------------------------------------------------------------------------------------------------


def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """The devices of this machine, of one type if given: [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]."""
    from penstock.runtime.devices import device_types

    kinds = sorted(device_types(), key=lambda kind: kind.name != "CPU")
    found = [PhysicalDevice(f"/physical_device:{k.name}:{i}", k.name) for k in kinds for i in range(k.default_count())]
    return [d for d in found if device_type is None or d.device_type == device_type]


def _check(device: Any) -> None:
    if device not in list_physical_devices():
        raise ValueError(f"Unrecognized device: {device!r}")


def get_visible_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """The physical devices that sessions may use."""
    found = []
    for device in list_physical_devices(device_type):
        allowed = _visible.get(device.device_type)
        if allowed is None or device in allowed:
            found.append(device)
    return found


def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Lets later sessions use these physical devices only; the CPU is always there."""
    devices = list(devices) if isinstance(devices, (list, tuple)) and not isinstance(devices, PhysicalDevice) else [devices]
    for device in devices:
        _check(device)
        if device_type is not None and device.device_type != device_type:
            raise ValueError(f"Unrecognized device: {device!r}")
    kinds = {device_type} if device_type is not None else {d.device_type for d in list_physical_devices()}
    for kind in kinds:
        _visible[kind] = [d for d in devices if d.device_type == kind]
        if kind != "CPU":
            default_config.editable().device_count[kind] = len(_visible[kind])


def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """The devices that a session made now has."""
    from penstock.runtime.devices import make_local_devices

    devices = make_local_devices(default_config.current())
    found = [LogicalDevice("/device:" + d.name.rpartition("/device:")[2], d.attributes.device_type) for d in devices]
    return [d for d in found if device_type is None or d.device_type == device_type]


def get_logical_device_configuration(device: PhysicalDevice) -> list[LogicalDeviceConfiguration] | None:
    """What a physical device was split into; None if it was not."""
    _check(device)
    return _logical.get(device)


def set_logical_device_configuration(device: PhysicalDevice, logical_devices: Any) -> None:
    """Splits a device: with two configurations, the CPU becomes /cpu:0 and /cpu:1 in later sessions."""
    _check(device)
    if device.device_type == "CPU" and any(c.memory_limit is not None for c in logical_devices):
        raise ValueError("Setting memory limit on CPU virtual devices is currently not supported")
    _logical[device] = list(logical_devices)
    default_config.editable().device_count[device.device_type] = len(_logical[device])


def get_device_details(device: PhysicalDevice) -> dict[str, Any]:
    """Facts about a device, such as its name in a shop; none are known for CPUs."""
    _check(device)
    return {}


# -- placement, threads, optimiser ------------------------------------------------------------------------------------


def get_soft_device_placement() -> bool:
    """Whether ops may run elsewhere if their device has no kernel for them."""
    return default_config.editable().allow_soft_placement


def set_soft_device_placement(enabled: bool) -> None:
    """Lets ops of later sessions run elsewhere if their device has no kernel for them."""
    default_config.editable().allow_soft_placement = bool(enabled)


def get_log_device_placement() -> bool:
    """Whether the placement of nodes is logged."""
    return default_config.editable().log_device_placement


def set_log_device_placement(enabled: bool) -> None:
    """Logs the placement of nodes in later sessions."""
    default_config.editable().log_device_placement = bool(enabled)


def get_intra_op_parallelism_threads() -> int:
    """Threads within one op; 0 leaves it to the system."""
    return default_config.editable().intra_op_parallelism_threads


def set_intra_op_parallelism_threads(num_threads: int) -> None:
    """Sets the threads within one op, for later sessions."""
    default_config.editable().intra_op_parallelism_threads = num_threads


def get_inter_op_parallelism_threads() -> int:
    """Threads that run ops at the same time; 0 leaves it to the system."""
    return default_config.editable().inter_op_parallelism_threads


def set_inter_op_parallelism_threads(num_threads: int) -> None:
    """Sets the threads that run ops at the same time, for later sessions."""
    default_config.editable().inter_op_parallelism_threads = num_threads


def get_jit() -> str:
    """"autoclustering" if XLA is asked for, else the empty string."""
    return "autoclustering" if default_config.editable().graph_options.optimizer_options.global_jit_level > 0 else ""


def set_jit(enabled: bool | str) -> None:
    """Asks for XLA in later sessions: True or "autoclustering"."""
    if isinstance(enabled, str) and enabled not in ("", "autoclustering"):
        raise ValueError("jit_config must be False, True, or 'autoclustering'")
    default_config.editable().graph_options.optimizer_options.global_jit_level = 1 if enabled else 0


_TOGGLES = (
    "layout_optimizer", "constant_folding", "shape_optimization", "remapping", "arithmetic_optimization", "dependency_optimization",
    "loop_optimization", "function_optimization", "debug_stripper", "scoped_allocator_optimization", "pin_to_host_optimization",
    "implementation_selector", "auto_mixed_precision", "common_subgraph_elimination",
)  # fmt: skip
_SWITCHES = ("disable_model_pruning", "disable_meta_optimizer")
_ON, _OFF = 1, 2


def get_experimental_options() -> dict[str, bool]:
    """The optimiser's passes that were switched on or off."""
    rewriter = default_config.editable().graph_options.rewrite_options
    found = {name: getattr(rewriter, name) == _ON for name in _TOGGLES if getattr(rewriter, name, 0)}
    if rewriter.min_graph_nodes:
        found["min_graph_nodes"] = rewriter.min_graph_nodes
    return {**found, **{name: getattr(rewriter, name) for name in _SWITCHES}}


def set_experimental_options(options: dict[str, Any]) -> None:
    """Switches passes of the optimiser on or off in later sessions: `{"constant_folding": False}`. Unknown names are ignored."""
    rewriter = default_config.editable().graph_options.rewrite_options
    for name, value in options.items():
        if name in _TOGGLES and hasattr(rewriter, name):
            setattr(rewriter, name, _ON if value else _OFF)
        elif name in _SWITCHES:
            setattr(rewriter, name, bool(value))
        elif name == "min_graph_nodes":
            rewriter.min_graph_nodes = value


def enable_op_determinism() -> None:
    """Results repeat bit for bit, also from process to process: what `TF_DETERMINISTIC_OPS=1` does. Call it before the first session runs; it holds for good.

    Random ops repeat if they have seeds; as in TensorFlow, `tf.set_random_seed` gives them some.
    """
    require_determinism()


# -- memory -----------------------------------------------------------------------------------------------------------


def get_memory_growth(device: PhysicalDevice) -> bool:
    """Whether memory of a GPU is taken as needed."""
    return _growth[device]


def set_memory_growth(device: PhysicalDevice, enable: bool) -> None:
    """Takes memory of a GPU as needed; ValueError for other devices."""
    _check(device)
    if _logical.get(device):
        raise ValueError("Cannot set memory growth on device when virtual devices configured")
    if device.device_type != "GPU":
        raise ValueError(f"Cannot set memory growth on non-GPU and non-Pluggable devices: {device}")
    _growth[device] = bool(enable)
    default_config.editable().gpu_options.allow_growth = bool(enable)


def _no_statistics(device: str, text: str) -> Any:
    if not any(d.name.endswith(device) for d in list_logical_devices()):
        raise ValueError(f"No matching devices found for '{device}'")
    raise ValueError(text)


def get_memory_info(device: str) -> dict[str, int]:
    """Memory in use on a device; CPUs do not tell."""
    return _no_statistics(device, f"Allocator stats not available for device '{device}'")


def get_memory_usage(device: str) -> int:
    """Memory in use on a device; CPUs do not tell."""
    return _no_statistics(device, f"Allocator stats not available for device '{device}'")


def reset_memory_stats(device: str) -> None:
    """Forgets the peak memory of a device; CPUs keep none."""
    _no_statistics(device, f"Cannot reset memory stats for device '{device}'")


# -- what concerns eager execution and functions ----------------------------------------------------------------------


def get_device_policy() -> str:
    """Always "silent": tensors are copied between devices as needed."""
    return "silent"


def get_synchronous_execution() -> bool:
    """Always True: `Session.run` returns when the step is done."""
    return True


def set_synchronous_execution(enable: bool | None) -> None:
    """Only True (or None) is possible."""
    if enable is False:
        raise errors.UnimplementedError("Asynchronous execution belongs to eager mode, which is not part of Penstock.")


def functions_run_eagerly() -> bool:
    """Always False: functions are graphs."""
    return False


def run_functions_eagerly(run_eagerly: bool) -> None:
    """Only False is possible."""
    if run_eagerly:
        raise errors.UnimplementedError("Eager execution is not part of Penstock: functions always run as graphs.")


def tensor_float_32_execution_enabled() -> bool:
    """Whether TensorFloat-32 may be used; it needs hardware that has it."""
    return _flags["tf32"]


def enable_tensor_float_32_execution(enabled: bool) -> None:
    """Allows or forbids TensorFloat-32. No kernel here uses it."""
    _flags["tf32"] = bool(enabled)


def is_traceback_filtering_enabled() -> bool:
    """Whether frames of this package are hidden in tracebacks."""
    return _flags.get("filtering", True)


def enable_traceback_filtering() -> None:
    """Accepted; tracebacks show all frames."""
    _flags["filtering"] = True


def disable_traceback_filtering() -> None:
    """Accepted; tracebacks show all frames."""
    _flags["filtering"] = False
