"""`tf.test`'s questions about GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata
from typing import Any

from penstock.engines.xla import backend
from penstock.runtime.devices import Device, make_local_devices


def gpu_device_name() -> str:
    """The short name of the first GPU, "" if there is none.

    >>> import penstock as tf
    >>> with tf.device(tf.test.gpu_device_name()):  # "" is anywhere
    ...     x = tf.constant(1.0)
    """
    gpus = _gpus()
    return f"/device:GPU:{gpus[0].name.rpartition(':')[2]}" if gpus else ""


def is_gpu_available(cuda_only: bool = False, min_cuda_compute_capability: Sequence[int] | None = None) -> bool:
    """Whether there is a GPU, with this compute capability (major, minor) or a later one if that is given. `cuda_only` changes nothing: there are no others."""
    least = min_cuda_compute_capability
    return any(least is None or _capability(gpu) >= tuple(least) for gpu in _gpus())


def is_built_with_cuda() -> bool:
    """Whether the extra `gpu` is installed, JAX's support for CUDA. There may be no GPU here even so: see `is_gpu_available`."""
    return any("cuda" in plugin.name for plugin in metadata.entry_points(group="jax_plugins"))


def is_built_with_gpu_support() -> bool:
    """As `is_built_with_cuda`."""
    return is_built_with_cuda()


def is_built_with_rocm() -> bool:
    """False: of GPUs, only those with CUDA are used."""
    return False


def is_built_with_xla() -> bool:
    """Whether the extra `xla` is installed."""
    return backend.is_available()


def _gpus() -> list[Device]:
    return [device for device in make_local_devices() if device.kind.name == "GPU"]


def _capability(gpu: Any) -> tuple[int, ...]:
    """(9, 0) for "9.0"; nothing is less than what is not known."""
    text = getattr(gpu.jax_device, "compute_capability", None)
    return tuple(map(int, str(text).split("."))) if text else ()
