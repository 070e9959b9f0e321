"""XLA's compiler as a program of its own. Run by path, with the folder that jaxlib is in; see `apart`.

    request = sizes of two parts, options, module          (CompileOptions as bytes, StableHLO as bytecode)
    reply   = "1" or "0" and a size, the executable or what went wrong

It imports jaxlib and nothing of Penstock or JAX: 0.1 s and 100 MB. It ends when nobody has asked for `IDLE` seconds, when its input ends, and when
its parent is gone: a parent's other children may hold the other end of the pipe, and a module takes its time.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import threading
import time

REQUEST, REPLY = struct.Struct(">QQ"), struct.Struct(">cQ")
DONE, FAILED = b"1", b"0"
IDLE = 15.0
NICE = 10
"""Where steps keep a core busy, it gets a tenth of that. With 19 it would be a seventieth, and most programs would be over first."""


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main(folder: str, parent: int) -> None:
    """Answers requests from standard input."""
    os.nice(NICE)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed is no reply
    sys.path[0] = folder  # in the place of this file's folder, whose modules are not meant for others
    from jaxlib import xla_client

    client = xla_client.make_cpu_client()
    devices = client.devices()
    while select.select([requests], [], [], IDLE)[0]:
        head = requests.read(REQUEST.size)
        if len(head) < REQUEST.size:
            return
        options, module = (requests.read(size) for size in REQUEST.unpack(head))
        try:
            wish = xla_client.CompileOptions.ParseFromString(options)
            result, data = DONE, client.serialize_executable(client.compile_and_load(module, devices, wish))
        except Exception as error:
            result, data = FAILED, f"{type(error).__name__}: {error}".encode()
        try:
            replies.write(REPLY.pack(result, len(data)))
            replies.write(data)
            replies.flush()
        except BrokenPipeError:
            os._exit(1)  # the parent is gone, and so is whoever would read about it


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
