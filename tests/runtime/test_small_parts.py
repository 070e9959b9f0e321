"""Call frames, resources, devices, frame ids."""

import threading

import numpy as np
import pytest

from penstock import errors
from penstock.ops.resources import ResourceHandle
from penstock.runtime.call_frame import MISSING, CallFrame
from penstock.runtime.devices import DeviceSet, DeviceType, device_types, make_local_devices, register_device_type
from penstock.runtime.frame_id import child_frame_id, combine, hash64
from penstock.runtime.resources import OpSegment, ResourceManager


class TestCallFrame:
    def test_round_trip(self):
        frame = CallFrame([np.float32(1), np.float32(2)], 2)
        assert frame.get_arg(1) == 2
        frame.set_retval(1, np.zeros(3))
        frame.set_retval(0, np.ones(2))
        first, second = frame.take_retvals()
        assert first.shape == (2,) and second.shape == (3,)

    def test_missing_retval(self):
        frame = CallFrame([], 2)
        frame.set_retval(1, np.zeros(3))
        with pytest.raises(errors.InvalidArgumentError, match=r"Retval\[0\] does not have value"):
            frame.take_retvals()
        assert frame.take_retvals(allow_dead=True)[0] is MISSING

    def test_set_twice(self):
        frame = CallFrame([], 1)
        frame.set_retval(0, 1)
        with pytest.raises(errors.InternalError, match=r"Retval\[0\] has already been set"):
            frame.set_retval(0, 1)

    def test_out_of_range(self):
        frame = CallFrame([1], 1)
        with pytest.raises(errors.InvalidArgumentError, match=r"not within \[0, 1\)"):
            frame.get_arg(1)
        with pytest.raises(errors.InvalidArgumentError, match=r"not within \[0, 1\)"):
            frame.set_retval(1, 0)


class Queue:
    pass


class Table:
    def __init__(self):
        self.disposed = 0

    def dispose(self):
        self.disposed += 1


class TestResourceManager:
    def test_create_and_look_up(self):
        manager = ResourceManager()
        queue = manager.create("c", "x", Queue, Queue())
        assert manager.lookup("c", "x", Queue) is queue
        assert manager.lookup("c", "x", None) is queue
        table = manager.lookup_or_create("c", "x", Table, Table)
        assert table is not queue and manager.lookup_or_create("c", "x", Table, lambda: pytest.fail("exists")) is table
        with pytest.raises(errors.AlreadyExistsError, match="Resource c/x/Queue"):
            manager.create("c", "x", Queue, Queue())

    def test_default_container(self):
        manager = ResourceManager()
        table = manager.create("", "t", Table, Table())
        assert manager.lookup("localhost", "t", Table) is table and manager.lookup(b"", "t", Table) is table

    def test_not_found(self):
        manager = ResourceManager()
        with pytest.raises(errors.NotFoundError, match=r"Container c does not exist. \(Could not find resource: c/x\)"):
            manager.lookup("c", "x", Queue)
        manager.create("c", "y", Queue, Queue())
        with pytest.raises(errors.NotFoundError, match="Resource c/x/Queue does not exist"):
            manager.lookup("c", "x", Queue)
        with pytest.raises(errors.NotFoundError):
            manager.delete("c", "y", Table)

    def test_delete_and_clean_up(self):
        manager = ResourceManager()
        tables = [manager.create("c", str(i), Table, Table()) for i in range(3)]
        other = manager.create("d", "0", Table, Table())
        manager.delete("c", "0", Table)
        assert [t.disposed for t in tables] == [1, 0, 0]
        manager.cleanup("c")
        manager.cleanup("nothing there")
        assert [t.disposed for t in tables] == [1, 1, 1] and not other.disposed
        assert [row[:2] for row in manager.items()] == [("d", "0")]
        manager.clear()
        assert other.disposed and not manager.items()

    def test_handles(self):
        manager = ResourceManager()
        table = manager.create("", "t", Table, Table())
        assert manager.lookup_handle(ResourceHandle("/device:CPU:0", "localhost", "t", "Table"), Table) is table
        anonymous = Table()
        assert (
            manager.lookup_handle(ResourceHandle("/device:CPU:0", "", "", "Table", resource=anonymous), Table)
            is anonymous
        )

    def test_made_once_by_many_threads(self):
        manager = ResourceManager()
        made, found = [], []

        def make():
            made.append(1)
            return Table()

        threads = [
            threading.Thread(target=lambda: found.append(manager.lookup_or_create("", "t", Table, make)))
            for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 1 and len({id(f) for f in found}) == 1


def test_op_segment_keeps_state():
    segment = OpSegment()
    segment.state("a").counter = 3
    assert segment.state("a").counter == 3
    assert not hasattr(segment.state("b"), "counter")


class Config:
    def __init__(self, **device_count):
        self.device_count = device_count


class TestDevices:
    def test_local_devices(self):
        devices = make_local_devices(Config(CPU=2))
        assert [d.name for d in devices] == [f"/job:localhost/replica:0/task:0/device:CPU:{i}" for i in range(2)]
        assert all(0 < d.attributes.incarnation < 1 << 64 for d in devices)
        assert devices[0].attributes.incarnation != devices[1].attributes.incarnation
        assert devices[0].resources is not devices[1].resources
        assert len(make_local_devices()) == 1
        with pytest.raises(errors.InvalidArgumentError, match="CPU"):
            make_local_devices(Config(CPU=0))

    def test_attributes_proto(self):
        device = make_local_devices()[0]
        proto = device.attributes.to_proto()
        assert (proto.name, proto.device_type, proto.incarnation) == (device.name, "CPU", device.attributes.incarnation)
        assert proto.memory_limit == 256 << 20

    def test_look_up(self):
        devices = DeviceSet(make_local_devices(Config(CPU=2)))
        assert devices.client_device is devices.devices[0] and len(devices) == 2
        for name in ("/job:localhost/replica:0/task:0/device:CPU:1", "/device:CPU:1", "/cpu:1", "/job:localhost/cpu:1"):
            assert devices.lookup(name).name.endswith("CPU:1")
        assert devices.find("/device:CPU:*") is None and len(devices.matching("/device:CPU:*")) == 2
        with pytest.raises(errors.InvalidArgumentError, match="/device:GPU:0 unknown device"):
            devices.lookup("/device:GPU:0")
        with pytest.raises(errors.InvalidArgumentError, match="fits several devices"):
            devices.lookup("/job:localhost")
        with pytest.raises(errors.InvalidArgumentError, match="Malformed device"):
            devices.lookup("/nonsense:1:2")
        with pytest.raises(errors.AlreadyExistsError):
            devices.add(devices.client_device)

    def test_new_device_types(self):
        from penstock.graph.opdef import parse_signature

        class Toy(DeviceType):
            name = "TOY"
            priority = 300

            def default_count(self):
                return 1

        from penstock.runtime import devices as module

        register_device_type(Toy())
        try:
            found = make_local_devices(Config(CPU=1, TOY=2))
            assert [d.type for d in found] == ["CPU", "TOY", "TOY"]
            assert [kind.name for kind in device_types()] == ["TOY", "GPU", "CPU"]
            assert [kind.name for kind in DeviceSet(found).types()] == ["TOY", "CPU"]
            assert DeviceSet(found).matching("")[0].type == "TOY"
            opdef = parse_signature("Toy(x: float, shape: int32) -> (y: float)")
            opdef.host_memory = frozenset({"shape"})
            assert not found[1].has_kernel(opdef)
            opdef.kernels["TOY"] = lambda x, shape: x
            assert found[1].has_kernel(opdef) and not found[0].has_kernel(opdef)
            assert found[1].kind.memory_types(opdef) == ({"x": "device", "shape": "host"}, {"y": "device"})
            assert found[0].kind.memory_types(opdef) == ({"x": "host", "shape": "host"}, {"y": "host"})
        finally:
            del module._types["TOY"]


def test_hash64_is_tensorflows():
    # What TF's StringToHashBucket gives, modulo 2**63 - 1.
    known = {
        b"while/while_context": 4608138368000096215,
        b"": 105434511174508092,
        b"a": 2996632905371535868,
        b"abcdefgh": 3429851175771700306,
        b"abcdefghi" * 5: 8168779844075239780,
    }
    for data, expected in known.items():
        assert hash64(data) % (2**63 - 1) == expected


def test_frame_ids():
    outer = child_frame_id(0, 0, "outer")
    assert outer == combine(0, combine(0, hash64(b"outer")))
    assert len({child_frame_id(outer, i, "inner") for i in range(100)}) == 100
    assert all(0 <= child_frame_id(outer, i, "inner") < 1 << 64 for i in range(100))
