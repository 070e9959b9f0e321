"""XLA's compiler in a process of its own: the same programs, and nothing lost if it dies."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jaxlib = pytest.importorskip("jaxlib")

from penstock.engines.python.structure import Call
from penstock.engines.xla import apart, backend, program, segments

pytestmark = pytest.mark.skipif(os.name != "posix", reason="compiles in this process")


@pytest.fixture
def process(monkeypatch):
    """A process that has not been started."""
    backend.start()
    found = apart.Process()
    monkeypatch.setattr(apart, "_process", found)
    monkeypatch.setattr(jax._src.compilation_cache, "is_cache_used", lambda *_: False)  # JAX's own setting counts once in a process
    yield found
    found.stop()


def step(x, weights):
    new = [w - 0.1 * jax.numpy.tanh(x @ w) for w in weights]
    return [jax.numpy.sin(new[0]).sum()], new


def lowered(function=step):
    square = jax.ShapeDtypeStruct((5, 5), np.float32)
    return jax.jit(lambda *args: function(*args), donate_argnums=(1,)).lower(square, [square, square])


def compiled(function=step):
    with apart.in_process_of_its_own():
        return lowered(function).compile()


def results(call):
    x = np.random.RandomState(0).randn(5, 5).astype(np.float32)
    weights = [jax.numpy.array(x + i) for i in range(2)]
    out, new = call(x, weights)
    assert all(w.is_deleted() for w in weights)  # they were donated
    return [np.asarray(v) for v in (*out, *new)]


def assert_same(call):
    for a, b in zip(results(call), results(lowered().compile())):
        np.testing.assert_array_equal(a, b)


def test_programs_are_the_same_and_are_donated_to(process):
    call = compiled()
    assert process.popen is not None
    assert_same(call)


def test_only_what_is_compiled_in_the_background_goes_there(process):
    lowered().compile()
    assert process.popen is None
    done = []
    backend._Compiler().submit(lambda: done.append(lowered().compile()))
    deadline = time.monotonic() + 60
    while not done and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.popen is not None
    assert_same(done[0])


def test_a_process_that_has_ended_is_started_again(process):
    compiled()
    first = process.popen
    first.kill()
    first.wait()
    assert_same(compiled())
    assert process.popen.pid != first.pid


def test_a_new_process_that_is_killed_is_started_again(process, monkeypatch, tmp_path):
    """In the middle of its first request."""
    marks = tmp_path / "marks"
    dying = f"""
        import os, signal, sys
        with open({str(marks)!r}, "a") as file:
            file.write("x")
        if os.path.getsize({str(marks)!r}) < {apart.MOST_DEATHS}:
            sys.stdin.buffer.read(1)
            os.kill(os.getpid(), signal.SIGKILL)
        import runpy
        runpy.run_path({apart.compiler.__file__!r}, run_name="__main__")
    """
    (tmp_path / "dying.py").write_text(textwrap.dedent(dying))
    monkeypatch.setattr(apart.compiler, "__file__", str(tmp_path / "dying.py"))
    assert_same(compiled())
    assert not process.is_unable and process.popen is not None and marks.read_text() == "x" * apart.MOST_DEATHS


def test_ctrl_c_is_not_for_it(process):
    compiled()
    first = process.popen
    first.send_signal(signal.SIGINT)
    assert_same(compiled())
    assert process.popen is first


@pytest.mark.parametrize("ending", ["raise SystemExit(1)", "import sys; sys.stdin.buffer.read(1)"])
def test_without_it_programs_are_compiled_here(process, monkeypatch, tmp_path, caplog, ending):
    """It ends at once, or in the middle of a request."""
    (tmp_path / "broken.py").write_text(ending)
    monkeypatch.setattr(apart.compiler, "__file__", str(tmp_path / "broken.py"))
    with caplog.at_level(logging.INFO, "penstock.xla"):
        assert_same(compiled())
        assert_same(compiled())
    assert process.is_unable and process.popen is None
    assert [r.message for r in caplog.records if "compiled in this process" in r.message] == [r.message for r in caplog.records][:1]


@pytest.mark.parametrize("executable", [None, "/nowhere/python"])
def test_without_an_interpreter_programs_are_compiled_here(process, monkeypatch, caplog, executable):
    monkeypatch.setattr(sys, "executable", executable)
    with caplog.at_level(logging.INFO, "penstock.xla"):
        assert_same(compiled())
    assert process.is_unable and "no process can be started" in caplog.text


def test_what_it_cannot_compile_is_no_reason_to_end_it(process):
    with pytest.raises(apart.Refused):
        process.compile(b"no module", b"", 1)
    first = process.popen
    assert_same(compiled())
    assert process.popen is first


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_forked_child_leaves_it_alone(process):
    compiled()
    pid = os.fork()
    if not pid:
        os._exit(0 if apart._process.popen is None and apart._process is not process else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    first = process.popen
    assert_same(compiled())
    assert process.popen is first


SCRIPT = """
import os, signal, sys, threading, time
from penstock.engines.xla import apart, backend
jax = backend.start()
jax.config.update("jax_enable_compilation_cache", False)

def long(x):
    for i in range(3000):
        x = jax.numpy.sin(x) * x + i
    return x

backend.in_background(lambda: jax.jit(long).lower(jax.ShapeDtypeStruct((4,), "float32")).compile())
while apart._process.popen is None:
    time.sleep(0.01)
print(apart._process.popen.pid, flush=True)
"""


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_it_goes_when_its_parent_goes(end):
    """In the middle of a long compilation, which the parent does not wait for."""
    env = {k: v for k, v in os.environ.items() if k != apart.SWITCH}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(SCRIPT) + end], capture_output=True, text=True, env=env, timeout=180)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL if end else 0, "")
    pid = int(done.stdout)
    deadline = time.monotonic() + 60
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(pid)


def test_a_parent_that_is_gone_before_the_reply_is_no_error():
    place = os.path.dirname(os.path.dirname(os.path.abspath(jaxlib.__file__)))
    command = [sys.executable, os.path.abspath(apart.compiler.__file__), place, str(os.getpid())]
    popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    popen.stdout.close()
    popen.stdin.write(apart.compiler.REQUEST.pack(0, 9) + b"no module")
    popen.stdin.close()
    assert popen.stderr.read() == b"" and popen.wait() == 1
    popen.stderr.close()


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"  # whoever has to wait for it now
    except OSError:
        return False


def test_it_can_be_switched_off(monkeypatch):
    def original(*args):
        raise AssertionError

    cache = SimpleNamespace(put_executable_and_time=original)
    fake = SimpleNamespace(_src=SimpleNamespace(compiler=SimpleNamespace(backend_compile_and_load=original), compilation_cache=cache))
    monkeypatch.setenv(apart.SWITCH, "0")
    apart.install(fake, lambda: 1)
    assert fake._src.compiler.backend_compile_and_load is original
    monkeypatch.setenv(apart.SWITCH, "1")
    apart.install(fake, lambda: 1)
    assert fake._src.compiler.backend_compile_and_load is not original
    apart.install(SimpleNamespace(_src=SimpleNamespace(), __version__="0"), lambda: 1)  # has no such place


def test_equal_programs_share_an_executable():
    a, b = (program._executable(lowered(lambda x, weights: step(x, weights))) for _ in range(2))
    assert a is b
    other = program._executable(lowered(lambda x, weights: step(x, weights[::-1])))
    assert other is not a
    assert_same(a)


def test_jaxs_cache_on_disk_gets_what_the_process_sent(process, monkeypatch):
    kept = []
    monkeypatch.setattr(jax._src.compilation_cache, "_get_cache", lambda *_: SimpleNamespace(put=lambda key, data: kept.append(data)))
    with apart.in_process_of_its_own():
        call = lowered().compile()
        executable, sent = apart._here.last
        for found in (executable, SimpleNamespace(serialize=lambda: b"another one")):
            jax._src.compilation_cache.put_executable_and_time("key", "step", found, None, 1)
    read = [jax._src.compilation_cache.extract_executable_and_time(jax._src.compilation_cache.decompress_executable(data))[0] for data in kept]
    assert read == [sent, b"another one"] and apart._here.last is None
    assert_same(call)


def test_only_what_is_too_long_for_one_segment_is_cut():
    class Short(segments.Policy):
        largest, part = 10, 4

    def sizes(count):
        statements = [Call(SimpleNamespace(op=None)) for _ in range(count)]
        return [len(s.statements) for s in segments._segments([(s, s) for s in statements], Short())]

    assert sizes(10) == [10] and sizes(11) == [4, 4, 3]


KEPT = """
import sys
from penstock.engines.xla import backend
jax = backend.start()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
print(jax.jit(lambda x: jax.numpy.sin(x) * 3)(jax.numpy.arange(4.0)).tolist())
"""


def test_a_broken_program_on_disk_is_written_anew(tmp_path):
    def run():
        env = {**os.environ, "PENSTOCK_XLA_CACHE": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, env=env, timeout=120, check=True)
        return done.stdout, done.stderr.count("compiled anew"), done.stderr.count("Error reading")

    want, *told = run()
    entries = sorted(tmp_path.glob("*-cache"))
    assert entries and told == [0, 0]
    for entry in entries:
        entry.write_bytes(b"broken")
    assert run() == (want, len(entries), 0)
    assert all(len(entry.read_bytes()) > 100 for entry in entries)
    assert run() == (want, 0, 0)
