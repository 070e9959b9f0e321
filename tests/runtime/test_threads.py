import os
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from penstock import errors
from penstock.runtime import threads
from penstock.runtime.threads import SessionPools, WorkPool, cgroup_limit, cpu_count, inter_op_threads, intra_op_threads
from tests.steps import wait_until


def write(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


class TestCpuCount:
    def test_within_affinity(self):
        assert 1 <= cpu_count() <= len(os.sched_getaffinity(0))

    def test_cgroup_v2_takes_the_tightest_of_all_groups_around(self, tmp_path):
        write(tmp_path, "proc/self/cgroup", "0::/user.slice/job\n")
        write(tmp_path, "sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n")
        write(tmp_path, "sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n")
        assert cgroup_limit(str(tmp_path)) == 1.5

    def test_cgroup_v1(self, tmp_path):
        write(tmp_path, "proc/self/cgroup", "7:memory:/x\n4:cpu,cpuacct:/docker/abc\n")
        write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "200000\n")
        write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n")
        assert cgroup_limit(str(tmp_path)) == 2.0

    def test_cgroup_v1_seen_from_inside_a_container(self, tmp_path):
        write(tmp_path, "proc/self/cgroup", "4:cpu:/docker/abc\n")
        write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000")
        write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
        assert cgroup_limit(str(tmp_path)) == 0.5

    def test_unlimited(self, tmp_path):
        assert cgroup_limit(str(tmp_path)) is None
        write(tmp_path, "proc/self/cgroup", "0::/\n4:cpu:/\n")
        write(tmp_path, "sys/fs/cgroup/cpu.max", "max 100000\n")
        write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
        write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
        assert cgroup_limit(str(tmp_path)) is None


class TestWorkPool:
    def test_never_more_threads_than_asked_for(self):
        pool = WorkPool(2, "test-pool")
        running, most, done = [0], [0], threading.Semaphore(0)
        lock, both = threading.Lock(), threading.Barrier(2)

        def work():
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            both.wait(60)
            time.sleep(0.01)
            with lock:
                running[0] -= 1
            done.release()

        for _ in range(8):
            pool.submit(work)
        for _ in range(8):
            assert done.acquire(timeout=60)
        assert most[0] == 2
        pool.close()

    def test_threads_start_with_work_and_end_with_close(self):
        pool = WorkPool(4, "test-pool-close")
        assert not [t for t in threading.enumerate() if t.name == "test-pool-close"]
        done = threading.Event()
        pool.submit(done.set)
        assert done.wait(60)
        assert [t for t in threading.enumerate() if t.name == "test-pool-close"]
        pool.close()
        _gone("test-pool-close")
        with pytest.raises(errors.CancelledError):
            pool.submit(lambda: None)

    def test_idle_threads_are_used_again(self):
        pool = WorkPool(4, "test-pool-idle")
        names = set()
        for _ in range(10):
            done = threading.Event()
            pool.submit(lambda done=done: (names.add(threading.get_ident()), done.set()))
            assert done.wait(60)
            wait_until(lambda: pool._idle)
        assert len(names) == 1
        pool.close()

    def test_a_failing_task_does_not_end_the_pool(self, monkeypatch):
        seen = []
        monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type))
        pool = WorkPool(1)
        done = threading.Event()
        pool.submit(lambda: 1 / 0)
        pool.submit(done.set)
        assert done.wait(60) and seen == [ZeroDivisionError]
        pool.close()

    def test_kernels_on_the_pool_do_not_warn(self):
        pool = WorkPool(1)
        result, done = [], threading.Event()
        pool.submit(lambda: (result.append(np.geterr()), done.set()))
        assert done.wait(60) and set(result[0].values()) == {"ignore"}
        pool.close()

    @pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
    def test_after_fork(self):
        pool = WorkPool(1)
        done = threading.Event()
        pool.submit(done.set)
        assert done.wait(60)
        pid = os.fork()
        if pid == 0:
            again = threading.Event()
            pool.submit(again.set)
            threads.run_blocking(lambda: None)
            os._exit(0 if again.wait(60) else 1)
        assert os.waitpid(pid, 0)[1] == 0
        pool.close()


def _gone(name):
    wait_until(lambda: not [t for t in threading.enumerate() if t.name == name])


def config(**fields):
    return SimpleNamespace(
        **{
            "inter_op_parallelism_threads": 0,
            "use_per_session_threads": False,
            "session_inter_op_thread_pool": [],
            **fields,
        }
    )


def option(num_threads=0, global_name=""):
    return SimpleNamespace(num_threads=num_threads, global_name=global_name)


class TestSessionPools:
    def test_numbers(self):
        assert inter_op_threads() == cpu_count() and inter_op_threads(config(inter_op_parallelism_threads=3)) == 3
        assert inter_op_threads(config(inter_op_parallelism_threads=-1)) == 0
        assert intra_op_threads(SimpleNamespace(intra_op_parallelism_threads=5)) == 5

    def test_sessions_share_the_process_pool(self):
        first, second = SessionPools(config()), SessionPools(None)
        assert first.get() is second.get() is not None
        first.close()
        done = threading.Event()
        second.get().submit(done.set)
        assert done.wait(60)

    def test_a_session_of_its_own(self):
        pools = SessionPools(config(use_per_session_threads=True, inter_op_parallelism_threads=3))
        assert pools.get().num_threads == 3 and pools.get() is not SessionPools(config()).get()
        pools.close()

    def test_callers_thread(self):
        assert SessionPools(config(inter_op_parallelism_threads=-1)).get() is None
        assert SessionPools(config()).get(-1) is None

    def test_named_pools(self):
        first = SessionPools(config(session_inter_op_thread_pool=[option(2, "shared-a"), option(1)]))
        second = SessionPools(config(session_inter_op_thread_pool=[option(2, "shared-a"), option(1)]))
        assert first.get(0) is second.get(0) and first.get(0).num_threads == 2
        assert first.get(1) is not second.get(1)
        with pytest.raises(
            errors.InvalidArgumentError,
            match="configured previously with num_threads=2; cannot re-configure with num_threads=3",
        ):
            SessionPools(config(session_inter_op_thread_pool=[option(3, "shared-a")]))
        with pytest.raises(errors.InvalidArgumentError, match="Invalid inter_op_thread_pool: 2"):
            first.get(2)
        first.close()
        second.close()
