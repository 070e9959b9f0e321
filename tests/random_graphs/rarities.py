"""Steps with ops that programs seldom have: files and their readers, closed queues, imported tables, handles of old kinds, calls to other devices."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from typing import Any

import numpy as np

from .control import _defun
from .maker import Feed, Maker
from .objects import Order, _element


@functools.cache
def folder() -> str:
    """A folder of small files, there as long as the process is."""
    import penstock

    made = tempfile.mkdtemp(prefix="random-graphs-")
    atexit.register(shutil.rmtree, made, True)
    for name, text in (("lines.txt", b"one\ntwo 2\n\nfour\n"), ("more.txt", b"five\nsix\n"), ("table.txt", b"3 0.5\n5 1.5\n9 2.5\n"), ("fixed.bin", bytes(range(24)))):
        with open(os.path.join(made, name), "wb") as file:
            file.write(text)
    with penstock.python_io.TFRecordWriter(os.path.join(made, "records.bin")) as writer:
        for record in (b"first", b"", b"third record"):
            writer.write(record)
    return made


def path(name: str) -> str:
    return os.path.join(folder(), name)


def readers(m: Maker) -> None:
    """A reader of files, for each kind of them; its state goes on from run to run."""
    tf, rng = m.tf, m.rng
    raw, order, v = tf.raw_ops, Order(tf), rng.choice(["", "V2"])
    kind, files, more = rng.choice([
        ("TextLineReader", ["lines.txt", "more.txt"], {"skip_header_lines": rng.choice([0, 1])}), ("WholeFileReader", ["more.txt", "lines.txt"], {}), ("TFRecordReader", ["records.bin"], {}),
        ("FixedLengthRecordReader", ["fixed.bin"], {"record_bytes": 5, "header_bytes": 2, "footer_bytes": 1}), ("IdentityReader", ["lines.txt"], {}),
    ])  # fmt: skip

    def op(name: str, **keywords: Any) -> Any:
        return order(lambda: getattr(raw, f"{name}{v}")(**keywords))

    queue = getattr(raw, f"FIFOQueue{v}")(component_types=["string"], shapes=[[]], capacity=1000)
    reader = getattr(raw, f"{kind}{v}")(**more)
    op("QueueEnqueueMany", handle=queue, components=[tf.constant([path(f) for f in files] * 8)])
    for _ in range(rng.randint(1, 3)):
        for y in op("ReaderRead", reader_handle=reader, queue_handle=queue):
            m.add(y)
    m.add(op("ReaderReadUpTo", reader_handle=reader, queue_handle=queue, num_records=np.int64(2))[1])
    if kind == "IdentityReader":
        state = op("ReaderSerializeState", reader_handle=reader)
        op("ReaderRestoreState", reader_handle=reader, state=state)
    m.add(op("ReaderNumRecordsProduced", reader_handle=reader))
    m.add(op("ReaderNumWorkUnitsCompleted", reader_handle=reader))
    m.updates += order.last


def rarity(m: Maker) -> None:
    """One of them."""
    tf, rng = m.tf, m.rng
    if m.inside:
        raise ValueError("only at the top")
    raw = tf.raw_ops
    order = Order(tf)
    x = _element(m)

    def files() -> None:
        text = tf.reduce_join(tf.as_string(x, precision=2), separator=",")
        where = path(m.name("out") + ".txt")
        order(lambda: raw.WriteFile(filename=where, contents=text))
        m.add(order(lambda: raw.ReadFile(filename=where)))
        m.add(order(lambda: raw.ReadFile(filename=path("lines.txt"))))
        m.add(tf.size(order(lambda: raw.MatchingFiles(pattern=path("*.bin")))))
        m.updates += order.last

    def closed_queue() -> None:
        v = rng.choice(["", "V2"])
        made = getattr(raw, f"FIFOQueue{v}")(component_types=["float32"], shapes=[[2]], capacity=50)
        closed = order(lambda: getattr(raw, f"QueueIsClosed{v}")(handle=made))

        def close() -> Any:
            with tf.control_dependencies([getattr(raw, f"QueueClose{v}")(handle=made)]):
                return tf.constant(1)

        m.add(order(lambda: tf.cond(closed, lambda: tf.constant(0), close)))  # to close it twice is an error
        m.add(order(lambda: getattr(raw, f"QueueIsClosed{v}")(handle=made)))
        m.add(order(lambda: getattr(raw, f"QueueSize{v}")(handle=made)))
        if not v:
            same = raw.FakeQueue(resource=raw.FIFOQueueV2(component_types=["float32"], shapes=[[2]], capacity=5))
            m.add(order(lambda: raw.QueueSize(handle=same)))
        m.updates += order.last

    def imported_table() -> None:
        v = rng.choice(["", "V2"])
        handle = getattr(raw, f"MutableHashTable{v}")(key_dtype="int64", value_dtype="float32", shared_name=m.name("t"))
        keys = np.array([3, 5, 9], np.int64)
        order(lambda: getattr(raw, f"LookupTableInsert{v}")(table_handle=handle, keys=np.array([1], np.int64), values=x[:1]))
        order(lambda: getattr(raw, f"LookupTableImport{v}")(table_handle=handle, keys=keys, values=_element(m, (3,))))
        m.add(order(lambda: getattr(raw, f"LookupTableFind{v}")(table_handle=handle, keys=np.array([9, 1, 3], np.int64), default_value=np.float32(-1))))
        m.updates += order.last

    def table_of_file() -> None:
        v = rng.choice(["", "V2"])
        handle = getattr(raw, f"HashTable{v}")(key_dtype="int64", value_dtype="float32", shared_name=m.name("t"))
        order(lambda: getattr(raw, f"InitializeTableFromTextFile{v}")(table_handle=handle, filename=path("table.txt"), key_index=0, value_index=1, vocab_size=3, delimiter=" "))
        m.add(order(lambda: getattr(raw, f"LookupTableFind{v}")(table_handle=handle, keys=np.array([9, 1, 3], np.int64), default_value=np.float32(-1))))
        m.add(order(lambda: getattr(raw, f"LookupTableSize{v}")(table_handle=handle)))
        m.updates += order.last

    def pooled_twice() -> None:
        image = _element(m, (1, 4, 4, 2)) + tf.constant(m.uniform([1, 4, 4, 2]))
        same = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
        _, where = raw.MaxPoolWithArgmax(input=image, Targmax="int64", **same)
        m.add(raw.MaxPoolGradGradWithArgmax(input=image, grad=_element(m, (1, 4, 4, 2)), argmax=where, **same))

    def old_placeholder() -> None:
        p = raw.PlaceholderV2(dtype="float32", shape=[2])
        m.feeds.append(Feed(p, [m.uniform([2]) for _ in range(3)]))
        m.add(p * x)

    def printed() -> None:
        done = raw.PrintV2(input=tf.as_string(tf.reduce_sum(x)), output_stream=f"file://{os.devnull}")
        with tf.control_dependencies([done]):
            m.add(x * 2.0)

    def unpredictable() -> None:
        m.add(raw.Timestamp() > 0)
        m.add(tf.size(tf.concat([raw.NonDeterministicInts(shape=np.array([3], np.int64), dtype="int64"), m.fit(x, "int64", (1,))], 0)))

    def ref_identity() -> None:
        v = m.variable(m.uniform([2]), False)
        read = raw.DebugGradientRefIdentity(input=v.handle) + x
        v.last = [read.op]
        m.add(read)

    def remote() -> None:
        body = _defun(tf)(tf.float32, func_name=m.name("f").replace(".", "_"))(lambda t: tf.tanh(t) * 2.0)
        body.add_to_graph(tf.get_default_graph())
        where = f"/job:localhost/replica:0/task:0/device:CPU:{rng.randrange(m.devices)}"
        y = raw.RemoteCall(target=where, args=[x], Tout=[tf.float32], f=body)[0]
        y.set_shape([2])
        m.add(y)

    def sequence_example() -> None:
        record = m.tf.train.SequenceExample()
        record.context.feature["n"].int64_list.value.append(rng.randint(0, 9))
        for i in range(3):
            record.feature_lists.feature_list["f"].feature.add().float_list.value.append(i + 0.5)
        serialized = m.feed([np.array(record.SerializeToString(), object)], [], "string")
        context, values = tf.io.parse_single_sequence_example(
            serialized, {"n": tf.io.FixedLenFeature([], tf.int64)}, {"f": tf.io.FixedLenSequenceFeature([], tf.float32)})  # fmt: skip
        m.add(context["n"])
        m.add(values["f"])
        if m.chance(0.6):
            context, values, lengths = tf.io.parse_sequence_example(
                tf.stack([serialized, serialized]), {"n": tf.io.FixedLenFeature([], tf.int64)}, {"f": tf.io.FixedLenSequenceFeature([], tf.float32)})  # fmt: skip
            m.add(context["n"])
            m.add(values["f"])
            m.add(lengths["f"])

    rng.choice([
        files, closed_queue, imported_table, table_of_file, pooled_twice, old_placeholder, printed, unpredictable, ref_identity, remote, sequence_example,
        lambda: readers(m), lambda: readers(m), lambda: readers(m),
    ])()  # fmt: skip
