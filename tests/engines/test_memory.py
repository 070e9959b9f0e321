"""Addresses, alignment, and memory that stays with the process."""

import subprocess
import sys

import numpy as np
import pytest

from penstock.engines import memory


def test_the_address_is_that_of_the_first_element():
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for array in (base, base[1], base[:, ::2], base.transpose(2, 0, 1), base[..., 3], np.zeros(0), np.frombuffer(b"abcd", np.int8)):
        assert memory.address(array) == array.ctypes.data


def test_large_arrays_begin_with_a_cache_line():
    for shape, dtype in (((3, 5000), np.float32), ((100, 100, 7), np.float64), ((70000,), np.int8)):
        array = memory.aligned_empty(shape, np.dtype(dtype))
        assert array.shape == shape and array.dtype == dtype and array.flags.c_contiguous and array.flags.writeable
        assert memory.address(array) % 64 == 0
        array[...] = 1
        assert array.all()
    assert memory.aligned_empty((2, 3), np.dtype(np.float32)).base is None


COUNT = """
import resource, sys
import numpy as np
from penstock.engines.memory import keep_freed_memory
print(keep_freed_memory())
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(48 << 20, np.uint8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(min(faults() for _ in range(10)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_what_one_step_freed_the_next_one_finds(monkeypatch):
    def run():
        done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=100, check=True)
        kept, faults = done.stdout.split()
        return kept == "True", int(faults)

    kept, faults = run()
    if not kept:
        pytest.skip("another C library")
    assert faults < 8
    monkeypatch.setenv("PENSTOCK_KEEP_MEMORY", "0")
    kept, faults = run()
    assert not kept and faults >= 24  # 48 MB in pages of 2 MB, or many more of 4 KB


SHARED = """
import resource, threading
import numpy as np
from penstock.engines.memory import keep_freed_memory
print(keep_freed_memory())
def work():
    np.empty(48 << 20, np.uint8).fill(1)
thread = threading.Thread(target=work)
thread.start()
thread.join()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_what_one_thread_freed_another_one_finds():
    done = subprocess.run([sys.executable, "-c", SHARED], capture_output=True, text=True, timeout=100, check=True)
    kept, grown = done.stdout.split()
    if kept != "True":
        pytest.skip("another C library")
    assert int(grown) < 24 << 10  # KB; an array of its own would be twice that
