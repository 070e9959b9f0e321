"""Steps with things that live in the runtime: TensorArrays, lists, stacks, queues, tables, staging areas, accumulators, readers.

Each step makes what it needs and uses it in an order that control dependencies fix.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from .maker import Maker


class Order:
    """`with order:` builds after everything built in it before; `order(op)` says what the next one waits for."""

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self.last: list[Any] = []

    @contextlib.contextmanager
    def after(self) -> Iterator[None]:
        with self.tf.control_dependencies(self.last):
            yield

    def __call__(self, build: Any) -> Any:
        with self.after():
            result = build()
        flat = [t for t in self.tf.nest.flatten(result) if t is not None]
        if flat:
            self.last = [t if isinstance(t, self.tf.Operation) else t.op for t in flat]
        return result


def _element(m: Maker, shape: tuple[int, ...] = (2,)) -> Any:
    found = m.number()
    return m.fit(found.tensor, "float32", shape) if found is not None else m.tf.ones(shape)


def tensor_array(m: Maker) -> None:
    """A TensorArray of one of the three versions: written, read, gathered, scattered, split, concatenated."""
    tf, rng = m.tf, m.rng
    raw, version = tf.raw_ops, rng.choice(["", "V2", "V3"])
    n = 3

    def op(name: str, **keywords: Any) -> Any:
        return getattr(raw, f"TensorArray{name}{version}")(handle=handle, **keywords)

    made = getattr(raw, f"TensorArray{version}")(size=n, dtype="float32", dynamic_size=m.chance(0.3), clear_after_read=m.chance(0.3), tensor_array_name=m.name("ta"))
    handle, flow = made if version == "V3" else (made, tf.constant(0.0))
    fill = rng.choice(["write", "scatter", "split", *(["unpack"] if not version else [])])
    x = _element(m, (n, 2))
    if fill == "write":
        for i in range(n):
            flow = op("Write", index=i, value=x[i], flow_in=flow)
    elif fill == "scatter":
        flow = op("Scatter", indices=rng.choice([[0, 1, 2], [2, 0, 1]]), value=x, flow_in=flow)
    elif fill == "split":
        flow = op("Split", value=x, lengths=np.array([1, 1, 1], np.int64), flow_in=flow)
    else:
        flow = op("Unpack", value=x, flow_in=flow)
    take = rng.choice(["read", "gather", "concat", "size", *(["pack"] if not version else [])])
    if take == "read":
        out = [op("Read", index=rng.randrange(n), flow_in=flow, dtype="float32")]
    elif take == "gather":
        out = [op("Gather", indices=[1, 0, 2], flow_in=flow, dtype="float32")]
    elif take == "concat" and fill == "split":
        out = list(op("Concat", flow_in=flow, dtype="float32"))
    elif take == "pack":
        out = [op("Pack", flow_in=flow, dtype="float32")]
    else:
        out = [op("Size", flow_in=flow)]
    for y in out:
        m.add(y)
    if m.chance(0.4) and fill == "write":
        kind = "TensorArrayGradWithShape" if version == "V3" and m.chance(0.4) else f"TensorArrayGrad{version}"
        more = {"shape_to_prepend": [2]} if kind.endswith("Shape") else {}
        if version == "":
            kind = "TensorArrayGrad"
        with tf.control_dependencies([y.op for y in out]):
            grad = getattr(raw, kind)(handle=handle if version != "" else tf.identity(handle), flow_in=flow, source="gradients", **more)
            handle, flow = (grad[0], grad[1]) if version == "V3" else (grad, flow)
            value = _element(m, (2, 2) if more else (2,))
            for i in range(n):
                flow = op("Write", index=i, value=value, flow_in=flow)
            m.add(op("Gather", indices=[0, 2], flow_in=flow, dtype="float32"))
    mine = [v.tensor.op.type for v in m.pool if v.key.startswith(m.step + ".")]
    if mine == [f"TensorArraySize{version}"]:  # a gradient of anything else would come after the end
        with tf.control_dependencies([v.tensor.op for v in m.pool if v.key.startswith(m.step + ".")]):
            m.updates.append(op("Close"))


def tensor_list(m: Maker) -> None:
    """A list of tensors, changed and read in several ways; old lists stay what they were."""
    tf, rng = m.tf, m.rng
    raw = tf.raw_ops
    shape = np.array([2], np.int32)
    x = _element(m, (3, 2))
    start = rng.choice([
        lambda: raw.TensorListFromTensor(tensor=x, element_shape=shape),
        lambda: raw.TensorListReserve(element_shape=shape, num_elements=3, element_dtype="float32"),
        lambda: raw.TensorListScatterV2(tensor=x, indices=[2, 0, 1], element_shape=shape, num_elements=3),
        lambda: raw.TensorListScatter(tensor=x, indices=[2, 0, 1], element_shape=shape),
        lambda: raw.TensorListSplit(tensor=x, element_shape=np.array([-1, 2], np.int32), lengths=np.array([1, 2], np.int64)),
    ])  # fmt: skip
    handle = start()
    split = handle.op.type == "TensorListSplit"
    if split:
        joined, lengths = raw.TensorListConcatV2(input_handle=handle, element_shape=np.array([-1, 2], np.int32), leading_dims=np.array([], np.int64), element_dtype="float32")
        m.add(joined)
        m.add(lengths)
        m.add(raw.TensorListConcat(input_handle=handle, element_dtype="float32", element_shape=[None, 2])[0])
        return
    item = _element(m)
    for _ in range(rng.randint(0, 3)):
        handle = rng.choice([
            lambda h: raw.TensorListPushBack(input_handle=h, tensor=item), lambda h: raw.TensorListSetItem(input_handle=h, index=rng.randrange(3), item=item),
            lambda h: raw.TensorListResize(input_handle=h, size=rng.randint(3, 5)), lambda h: raw.TensorListScatterIntoExistingList(input_handle=h, tensor=x[:2], indices=[1, 0]),
            lambda h: raw.TensorListConcatLists(input_a=h, input_b=raw.TensorListFromTensor(tensor=x, element_shape=shape), element_dtype="float32"),
        ])(handle)  # fmt: skip
    m.add(raw.TensorListStack(input_handle=handle, element_shape=shape, element_dtype="float32"))
    m.add(rng.choice([
        lambda: raw.TensorListGetItem(input_handle=handle, index=rng.randrange(3), element_shape=shape, element_dtype="float32"),
        lambda: raw.TensorListLength(input_handle=handle),
        lambda: raw.TensorListGather(input_handle=handle, indices=[2, 0], element_shape=shape, element_dtype="float32"),
        lambda: raw.TensorListPopBack(input_handle=handle, element_shape=shape, element_dtype="float32")[1],
        lambda: raw.TensorListElementShape(input_handle=handle, shape_type="int32"),
    ])())  # fmt: skip


def stack(m: Maker) -> None:
    """A stack of a step: pushes, pops, closing."""
    tf = m.tf
    raw, version = tf.raw_ops, m.rng.choice(["", "V2"])
    order = Order(tf)
    made = raw.StackV2(max_size=-1, elem_type="float32", stack_name=m.name("s")) if version else raw.Stack(elem_type="float32", stack_name=m.name("s"))
    for _ in range(3):
        x = _element(m, m.rng.choice([(), (2,)]))
        m.add(order(lambda x=x: getattr(raw, f"StackPush{version}")(handle=made, elem=x)))
    for _ in range(m.rng.randint(1, 3)):
        m.add(order(lambda: getattr(raw, f"StackPop{version}")(handle=made, elem_type="float32")))
    if m.chance(0.5):
        m.updates.append(order(lambda: getattr(raw, f"StackClose{version}")(handle=made)))


def queue(m: Maker) -> None:
    """A queue: put and taken within the step, so that nothing is left to wait for."""
    tf, rng = m.tf, m.rng
    if m.inside:
        raise ValueError("only at the top")
    order = Order(tf)
    kind = rng.choice(["fifo", "fifo", "padding", "priority", "shuffle", "old"])
    if kind == "old":
        _old_queue(m, order)
        return
    if kind == "shuffle":
        q = tf.RandomShuffleQueue(40, 0, ["float32"], [[2]], seed=m.seed % 100 + 1)
    elif kind == "padding":
        q = tf.PaddingFIFOQueue(40, ["float32"], [[None]])
    elif kind == "priority":
        q = tf.PriorityQueue(40, ["float32"], [[2]])
    else:
        q = tf.FIFOQueue(40, ["float32"], [[2]])
    key = [np.int64(rng.randint(0, 9)) for _ in range(4)]
    for i in range(2):
        x = _element(m, (rng.choice([1, 2, 3]),) if kind == "padding" else (2,))
        order(lambda x=x, i=i: q.enqueue([key[i], x] if kind == "priority" else x))
    many = _element(m, (2, 2))
    order(lambda: q.enqueue_many([[key[2], key[3]], many] if kind == "priority" else many))
    m.add(order(q.size))
    for result in [order(lambda: q.dequeue_many(2)), order(q.dequeue), order(lambda: q.dequeue_up_to(1)) if kind in ("fifo", "shuffle") else order(q.dequeue)]:
        for y in tf.nest.flatten(result):
            m.add(y)
    m.updates += order.last


def _old_queue(m: Maker, order: Order) -> None:
    """A queue by the ops of reference handles."""
    raw, rng = m.tf.raw_ops, m.rng
    kind = rng.choice(["FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue", "PriorityQueue"])
    types = ["int64", "float32"] if kind == "PriorityQueue" else ["float32"]
    more: dict[str, Any] = {"seed": 3, "seed2": 4} if kind == "RandomShuffleQueue" else {}
    if kind != "PriorityQueue":
        more["component_types"] = types
    else:
        more["component_types"] = ["float32"]
    made = getattr(raw, kind)(shapes=[[2]], capacity=100, **more)
    x, many = _element(m), _element(m, (3, 2))
    one = [np.int64(5), x] if kind == "PriorityQueue" else [x]
    several = [np.array([7, 2, 9], np.int64), many] if kind == "PriorityQueue" else [many]
    order(lambda: raw.QueueEnqueue(handle=made, components=one))
    order(lambda: raw.QueueEnqueueMany(handle=made, components=several))
    m.add(order(lambda: raw.QueueDequeueMany(handle=made, n=2, component_types=types))[-1])
    m.add(order(lambda: raw.QueueSize(handle=made)))
    m.add(order(lambda: raw.QueueIsClosed(handle=made)))
    m.add(order(lambda: raw.QueueDequeue(handle=made, component_types=types))[-1])
    m.add(order(lambda: (raw.QueueDequeueUpTo if kind in ("FIFOQueue", "RandomShuffleQueue") else raw.QueueDequeueMany)(handle=made, n=1, component_types=types))[-1])
    m.updates += order.last


def table(m: Maker) -> None:
    """A lookup table of strings or numbers, filled and asked."""
    tf, rng = m.tf, m.rng
    raw = tf.raw_ops
    order = Order(tf)
    kind = rng.choice(["HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2", "MutableHashTableOfTensors", "MutableHashTableOfTensorsV2", "MutableDenseHashTable", "MutableDenseHashTableV2",
                       "AnonymousHashTable", "AnonymousMutableHashTable", "AnonymousMutableDenseHashTable", "AnonymousMutableHashTableOfTensors"])  # fmt: skip
    version = "V2" if kind.endswith("V2") or kind.startswith("Anonymous") else ""
    more: dict[str, Any] = {} if kind.startswith("Anonymous") else {"shared_name": m.name("t")}
    shape: tuple[int, ...] = ()
    if "Dense" in kind:
        more.update(empty_key=np.int64(-1), deleted_key=np.int64(-2), initial_num_buckets=8)
    if kind == "MutableDenseHashTable":
        del more["empty_key"], more["deleted_key"]
        more["empty_key"] = np.int64(-1)
    if kind.removesuffix("V2").endswith("OfTensors"):
        shape = (2,)
        more["value_shape"] = [2]
    handle = getattr(raw, kind)(key_dtype="int64", value_dtype="float32", **more)

    def op(name: str, **keywords: Any) -> Any:
        return getattr(raw, f"LookupTable{name}{version}")(table_handle=handle, **keywords)

    values = _element(m, (3, *shape))
    keys = np.array([3, 5, 9], np.int64)
    if kind in ("HashTable", "HashTableV2", "AnonymousHashTable"):
        # A second initialisation with other values would be refused.
        order(lambda: getattr(raw, f"InitializeTable{version}")(table_handle=handle, keys=keys, values=np.array([0.5, 1.5, 2.5], np.float32)))
    else:
        order(lambda: op("Insert", keys=keys, values=values))
        if version and m.chance(0.4):
            order(lambda: op("Remove", keys=np.array([5], np.int64)))
    default = np.full(shape, -1, np.float32)
    m.add(order(lambda: op("Find", keys=np.array([9, 4, 3, 5], np.int64), default_value=default)))
    m.add(order(lambda: op("Size")))
    if m.chance(0.4):
        keys_out, values_out = order(lambda: op("Export", Tkeys="int64", Tvalues="float32"))
        m.add(tf.reduce_sum(keys_out))
        m.add(tf.reduce_max(values_out))
    m.updates += order.last


def staging(m: Maker) -> None:
    """A staging area, plain or with keys."""
    tf, rng = m.tf, m.rng
    if m.inside:
        raise ValueError("only at the top")
    raw, order, name = tf.raw_ops, Order(tf), m.name("stage")
    x = _element(m)
    if m.chance(0.4):
        same = {"dtypes": ["float32"], "shared_name": name}
        order(lambda: raw.Stage(values=[x], shared_name=name))
        m.add(order(lambda: raw.StagePeek(index=0, **same))[0])
        m.add(order(lambda: raw.StageSize(**same)))
        if m.chance(0.7):
            m.add(order(lambda: raw.Unstage(**same))[0])
        else:
            order(lambda: raw.StageClear(**same))
    else:
        prefix = rng.choice(["Map", "OrderedMap"])
        same = {"dtypes": ["float32"], "shared_name": name}

        def op(which: str, **keywords: Any) -> Any:
            return getattr(raw, f"{prefix}{which}")(**keywords)

        order(lambda: op("Stage", key=np.int64(3), indices=[0], values=[x], **same))
        m.add(order(lambda: op("Peek", key=np.int64(3), indices=[0], **same))[0])
        m.add(order(lambda: op("Size", **same)))
        m.add(order(lambda: op("IncompleteSize", **same)))
        way = rng.choice(["key", "any", "clear"])
        if way == "key":
            m.add(order(lambda: op("Unstage", key=np.int64(3), indices=[0], **same))[0])
        elif way == "any":
            m.add(order(lambda: list(op("UnstageNoKey", indices=[0], **same)))[0])
        else:
            order(lambda: op("Clear", **same))
    m.updates += order.last


def accumulator(m: Maker) -> None:
    """Conditional accumulators and barriers: put in and taken out within the step."""
    tf, rng = m.tf, m.rng
    if m.inside:
        raise ValueError("only at the top")
    raw, order = tf.raw_ops, Order(tf)
    kind = rng.choice(["dense", "resource", "sparse", "barrier"])
    x, z = _element(m), _element(m)
    if kind == "barrier":
        handle = raw.Barrier(component_types=["float32"], shapes=[[2]])
        order(lambda: raw.BarrierInsertMany(handle=handle, keys=["a", "b"], values=tf.stack([x, z]), component_index=0))
        m.add(order(lambda: raw.BarrierReadySize(handle=handle)))
        m.add(order(lambda: raw.BarrierIncompleteSize(handle=handle)))
        taken = order(lambda: raw.BarrierTakeMany(handle=handle, num_elements=2, component_types=["float32"]))
        m.add(taken[2][0])
    elif kind == "sparse":
        handle = raw.SparseConditionalAccumulator(dtype="float32", shape=[4, 2])
        for v in (x, z):
            order(lambda v=v: raw.SparseAccumulatorApplyGradient(
                handle=handle, local_step=np.int64(100), gradient_indices=np.array([1], np.int64), gradient_values=v[None], gradient_shape=np.array([4, 2], np.int64), has_known_shape=True))  # fmt: skip
        for y in order(lambda: raw.SparseAccumulatorTakeGradient(handle=handle, num_required=2, dtype="float32")):
            m.add(y)
    else:
        prefix = "Resource" if kind == "resource" else ""
        handle = getattr(raw, f"{prefix}ConditionalAccumulator")(dtype="float32", shape=[2], shared_name=m.name("acc"))

        def op(name: str, **keywords: Any) -> Any:
            return getattr(raw, f"{prefix}Accumulator{name}")(handle=handle, **keywords)

        if m.chance(0.3):
            order(lambda: op("SetGlobalStep", new_global_step=np.int64(1)))
        for v in (x, z):
            order(lambda v=v: op("ApplyGradient", local_step=np.int64(100), gradient=v))
        m.add(order(lambda: op("NumAccumulated")))
        m.add(order(lambda: op("TakeGradient", num_required=2, dtype="float32")))
    m.updates += order.last


def reader(m: Maker) -> None:
    """A reader that hands on what its queue holds."""
    tf = m.tf
    if m.inside:
        raise ValueError("only at the top")
    order = Order(tf)
    old = m.chance(0.4)
    v = "" if old else "V2"
    queue = getattr(tf.raw_ops, f"FIFOQueue{v}")(component_types=["string"], shapes=[[]], capacity=1000)
    made = getattr(tf.raw_ops, f"IdentityReader{v}")()
    order(lambda: getattr(tf.raw_ops, f"QueueEnqueueMany{v}")(handle=queue, components=[tf.constant(["a", "bc", "d"])]))
    key, value = order(lambda: getattr(tf.raw_ops, f"ReaderRead{v}")(reader_handle=made, queue_handle=queue))
    m.add(key)
    m.add(value)
    more = order(lambda: getattr(tf.raw_ops, f"ReaderReadUpTo{v}")(reader_handle=made, queue_handle=queue, num_records=np.int64(2)))
    m.add(more[1])
    m.add(order(lambda: getattr(tf.raw_ops, f"ReaderNumRecordsProduced{v}")(reader_handle=made)))
    m.add(order(lambda: getattr(tf.raw_ops, f"ReaderNumWorkUnitsCompleted{v}")(reader_handle=made)))
    if m.chance(0.3):
        m.add(tf.size(order(lambda: getattr(tf.raw_ops, f"ReaderSerializeState{v}")(reader_handle=made))))
    if m.chance(0.3):
        order(lambda: getattr(tf.raw_ops, f"ReaderReset{v}")(reader_handle=made))
    m.updates += order.last


def odds(m: Maker) -> None:
    """Smaller things: temporary variables, mutexes, counters, Python functions, session handles, moving state of random numbers."""
    tf, rng = m.tf, m.rng
    raw = tf.raw_ops
    x = _element(m)

    def temporary() -> None:
        name = m.name("tmp")
        ref = raw.TemporaryVariable(shape=[2], dtype="float32", var_name=name)
        ref = raw.Assign(ref=ref, value=x)
        ref = raw.AssignAdd(ref=ref, value=x * 2.0)
        m.add(raw.DestroyTemporaryVariable(ref=ref, var_name=name))

    def mutex() -> None:
        lock = raw.MutexLock(mutex=raw.MutexV2(shared_name=m.name("mutex")))
        with tf.control_dependencies([lock]):
            y = x + 1.0
        with tf.control_dependencies([y]):
            m.updates.append(raw.ConsumeMutexLock(mutex_lock=lock))
        m.add(y)

    def counter() -> None:
        resource = m.chance(0.5)
        v = m.variable(np.asarray(0, np.int32), resource)
        with v.turn(tf):
            y = raw.ResourceCountUpTo(resource=v.handle, limit=100, T="int32") if resource else raw.CountUpTo(ref=v.handle, limit=100)
        v.last = [y.op]
        m.updates.append(y.op)
        m.add(y)

    def python() -> None:
        made = tf.py_func(lambda a: np.float32(a.sum()) + a, [x], tf.float32, stateful=m.chance(0.5))
        m.add(made)

    def handle_questions() -> None:
        v = m.variable(m.uniform([2, 3]), True)
        with v.turn(tf):
            m.add(raw.VariableShape(input=v.handle))
            m.add(raw.VarIsInitializedOp(resource=v.handle))
            found = raw.ResourceGatherNd(resource=v.handle, indices=[[1, 2]], dtype="float32")
        v.last = [found.op]
        m.add(found)

    def reference_questions() -> None:
        v, w = m.variable(m.uniform([2]), False), m.variable(m.uniform([2]), False)
        m.add(raw.IsVariableInitialized(ref=v.handle, dtype="float32"))
        index = tf.cast(tf.reduce_sum(x) > 0, "int32")
        selected = tf.identity(raw.RefSelect(index=index, inputs=[v.handle, w.handle])) + 0.0
        no, yes = raw.RefSwitch(data=v.handle, pred=tf.reduce_sum(x) > 0.3)
        merged, which = raw.RefMerge(inputs=[raw.RefIdentity(input=no), yes])
        read = merged + 0.0
        # Other names of the variables: whoever changes these waits until both are read.
        v.last = [selected.op, read.op]
        w.last = [selected.op]
        for y in (selected, read, which):
            m.add(y)

    def generator() -> None:
        v = m.variable(np.array([m.seed, 7, 9], np.int64), True)
        op = v.write(tf, lambda handle: raw.StatefulStandardNormalV2(resource=handle, algorithm=np.int64(1), shape=np.array([2], np.int64)))
        m.add(op.outputs[0])
        op = v.write(tf, lambda handle: raw.RngSkip(resource=handle, algorithm=np.int64(1), delta=np.int64(3)))
        op = v.write(tf, lambda handle: raw.StatefulUniform(resource=handle, algorithm=np.int64(1), shape=np.array([2], np.int64)))
        m.add(op.outputs[0])
        m.updates.append(op)

    def random() -> None:
        shape = rng.choice([[2], [3, 2]])
        y = rng.choice([tf.random_normal, tf.random_uniform, tf.truncated_normal])(shape, seed=rng.randint(1, 99))
        m.add(y)
        m.add(tf.nn.dropout(x, 0.5, seed=rng.randint(1, 99)))
        m.add(tf.random_shuffle(tf.range(5), seed=3))
        m.updates.append(y.op)

    def sparse_map() -> None:
        order = Order(tf)
        name = m.name("map")
        handle = order(lambda: raw.AddSparseToTensorsMap(sparse_indices=np.array([[1]], np.int64), sparse_values=x[:1], sparse_shape=np.array([3], np.int64), shared_name=name))
        handles = order(lambda: raw.AddManySparseToTensorsMap(sparse_indices=np.array([[0, 1], [1, 0]], np.int64), sparse_values=x, sparse_shape=np.array([2, 3], np.int64), shared_name=name))
        with tf.control_dependencies(order.last):
            for y in raw.TakeManySparseFromTensorsMap(sparse_handles=tf.concat([[handle], handles], 0), dtype="float32", shared_name=name):
                m.add(y)

    def triggers() -> None:
        with tf.control_dependencies([x.op]):
            trigger = raw.ControlTrigger()
        with tf.control_dependencies([trigger]):
            m.add(x * 3.0)

    def conv_v2() -> None:
        image, weights, dy = _element(m, (1, 4, 4, 2)), _element(m, (2, 2, 2, 3)), _element(m, (1, 3, 3, 3))
        same = {"strides": [1, 1, 1, 1], "padding": "VALID"}
        m.add(raw.Conv2DBackpropInputV2(input=image, filter=weights, out_backprop=dy, **same))
        m.add(raw.Conv2DBackpropFilterV2(input=image, filter=weights, out_backprop=dy, **same))

    def destroyed() -> None:
        order = Order(tf)
        handle = raw.VarHandleOp(dtype="float32", shape=[2], shared_name=m.name("gone"))
        order(lambda: raw.AssignVariableOp(resource=handle, value=x))
        m.add(order(lambda: raw.ReadVariableOp(resource=handle, dtype="float32")))
        m.updates.append(order(lambda: raw.DestroyResourceOp(resource=handle)))

    def old_variable() -> None:
        order = Order(tf)
        ref = raw.Variable(shape=[2], dtype="float32", shared_name=m.name("old"))
        order(lambda: raw.Assign(ref=ref, value=x))
        order(lambda: raw.AssignSub(ref=ref, value=x * 0.5))
        m.add(order(lambda: ref + 0.0))

    def closed() -> None:
        order = Order(tf)
        made = raw.FIFOQueueV2(component_types=["float32"], shapes=[[2]], capacity=50)
        m.add(order(lambda: raw.QueueIsClosedV2(handle=made)))
        order(lambda: raw.QueueEnqueueV2(handle=made, components=[x]))
        m.add(order(lambda: raw.QueueSizeV2(handle=made)))

    def texts() -> None:
        m.add(raw.DecodeJSONExample(json_examples=tf.stack(['{"features": {}}'])))
        m.add(tf.substr(tf.as_string(x), 0, 3))
        m.add(tf.string_join([tf.as_string(x), "a"]))

    choices = [temporary, python, random, sparse_map, triggers, conv_v2, destroyed, texts]
    if not m.inside:
        choices += [mutex, counter, handle_questions, reference_questions, generator, old_variable, closed]
    rng.choice(choices)()
