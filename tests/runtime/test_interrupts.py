"""Ctrl-C, in a process of its own: the step is cancelled, what is still out is waited for, and the process can go on."""

import os
import signal
import subprocess
import sys
import textwrap
import time


class TestInterrupts:
    def start(self, body):
        here = os.path.dirname(os.path.abspath(__file__))
        root = os.path.dirname(os.path.dirname(here))
        code = f"""
import sys
sys.path[:0] = [{os.path.dirname(here)!r}, {root!r}]
from runtime.graphs import *
from penstock import errors
import threading
ended = []
def wait(ctx, done):
    def cancelled():
        threading.Timer(0.05, lambda: (ended.append(1), done(None, errors.CancelledError("cancelled")))).start()
    ctx.cancellation.register(cancelled)
    print("waiting", flush=True)
declare("TestWait() -> (y: int32) stateful", async_kernel=wait)
""" + textwrap.dedent(body)
        return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, process):
        assert process.stdout.readline() == "waiting\n", process.stderr.read()
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, err
        return out

    def test_ctrl_c_while_a_kernel_waits(self):
        process = self.start(
            """
            b = Builder()
            b.ret(0, b("TestWait"))
            e = executor(b)
            try:
                run(e)
            except KeyboardInterrupt:
                print("interrupted", ended, flush=True)
            ok = Builder()
            ok.ret(0, ok("AddV2", 1, 2))
            print(int(run(ok)[0]), int(run(ok, general=True)[0]))
            """
        )
        assert self.finish(process) == "interrupted [1]\n3 3\n"

    def test_ctrl_c_while_a_recv_waits(self):
        process = self.start(
            """
            b = Builder()
            recv = b("_Recv", tensor_type=dtypes.float32, tensor_name="x", send_device="/device:CPU:1", send_device_incarnation=1, recv_device="/device:CPU:0")
            b.ret(0, recv)
            try:
                print("waiting", flush=True)
                run(executor(b))
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            """
        )
        assert self.finish(process) == "interrupted\n"

    def test_ctrl_c_during_a_kernel(self):
        process = self.start(
            """
            import os, time
            def slow(x):
                print("waiting", flush=True)
                if general:
                    threading.Timer(0.2, os.kill, (os.getpid(), 2)).start()
                time.sleep(1 if general else 60)  # the state machine hears of it when the kernel is over
            declare("TestSlow(x: T) -> (y: T) [T: type]", kernel=slow)
            for general in (False, True):
                b = Builder()
                b.ret(0, b("TestSlow", 1))
                if general:
                    b("TestWait")
                try:
                    run(b, general=general)
                except KeyboardInterrupt:
                    print("interrupted", ended, flush=True)
            """
        )
        out = self.finish(process).splitlines()
        assert out[0] == "interrupted []" and out[-1] == "interrupted [1]"
