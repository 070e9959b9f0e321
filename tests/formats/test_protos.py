"""The messages: names, numbers, laziness, pickling, and the helpers around them."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import json_format, text_format

from penstock import errors
from penstock.formats import protos
from penstock.formats.proto.names import MODULE_OF

ROOT = Path(__file__).resolve().parents[2]


def graph_def():
    graph = protos.GraphDef()
    node = graph.node.add(name="c", op="Const", input=["^a"], device="/cpu:0")
    node.attr["dtype"].type = protos.DataType.DT_FLOAT
    node.attr["value"].tensor.float_val.append(1.5)
    node.attr["shapes"].list.shape.add().dim.add().size = -1
    graph.versions.producer = 27
    graph.debug_info.frames_by_id[7].line = 3
    graph.library.function.add().arg_attr[0].attr["x"].i = 5
    return graph


def test_every_name_is_there():
    for name in MODULE_OF:
        assert getattr(protos, name).DESCRIPTOR.full_name.startswith("penstock."), name
    assert protos.GraphDef.DESCRIPTOR.full_name == "penstock.GraphDef"
    assert protos.GraphDef.DESCRIPTOR.file.name == "penstock/formats/proto/framework.proto"
    assert set(MODULE_OF) <= set(dir(protos))
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = protos.Nonsense  # type: ignore[attr-defined]


def test_known_bytes():
    node = protos.NodeDef(name="c", op="Const")
    node.attr["dtype"].type = protos.DataType.DT_FLOAT
    data = node.SerializeToString()
    # As TensorFlow writes it.
    assert data == b"\n\x01c\x12\x05Const*\x0b\n\x05dtype\x12\x020\x01"
    assert protos.NodeDef.FromString(data) == node


CLUSTER = """
RunStepRequest: session_handle feed fetch target options partial_run_handle store_errors_in_response_body request_id
RunStepResponse: tensor metadata status_code status_error_message
RegisterGraphRequest: session_handle graph_def has_control_flow graph_options debug_options \
    create_worker_session_called collective_graph_key config_proto
RunGraphRequest: graph_handle step_id send recv_key exec_opts is_partial is_last_partial_run session_handle \
    store_errors_in_response_body create_worker_session_called request_id
RunGraphResponse: recv step_stats cost_graph partition_graph status_code status_error_message
RecvTensorRequest: step_id rendezvous_key dma_ok client_locality server_locality transport_options request_id
RecvTensorResponse: tensor is_dead send_start_micros transport_options require_ack
CreateWorkerSessionRequest: session_handle server_def isolate_session_state cluster_device_attributes master_task \
    master_incarnation
"""


@pytest.mark.parametrize("line", CLUSTER.strip().splitlines())
def test_cluster_messages_are_numbered_in_order(line):
    name, _, fields = line.partition(":")
    numbered = {f.name: f.number for f in getattr(protos, name).DESCRIPTOR.fields}
    assert numbered == {field: i for i, field in enumerate(fields.split(), 1)}


def test_services():
    methods = protos.service_methods("MasterService")
    assert list(methods)[:4] == ["CreateSession", "ExtendSession", "PartialRunSetup", "RunStep"]
    assert methods["RunStep"] == (protos.RunStepRequest, protos.RunStepResponse)
    worker = protos.service_methods("WorkerService")
    assert len(worker) == 15 and worker["RecvTensor"][1] is protos.RecvTensorResponse


def test_enums():
    assert protos.DataType.Name(101) == "DT_FLOAT_REF" and protos.DataType.Value("DT_STRING") == 7
    assert protos.OptimizerOptions.L0 == -1 and protos.OptimizerOptions.Level.Name(0) == "L1"
    assert protos.Code.UNAUTHENTICATED == 16
    assert protos.RewriterConfig.OFF == 2 and protos.SaverDef.V2 == 2


def test_namespaces():
    assert protos.data.Options().DESCRIPTOR.full_name == "penstock.data.Options"
    assert protos.tfprof.OpLogProto.DESCRIPTOR.full_name == "penstock.tfprof.OpLogProto"


def test_copies_pickles_and_texts():
    graph = graph_def()
    assert protos.GraphDef.FromString(graph.SerializeToString()) == graph
    assert pickle.loads(pickle.dumps(graph)) == graph
    assert copy.deepcopy(graph) == graph
    nested = protos.AttrValue.ListValue(i=[1, 2])
    assert pickle.loads(pickle.dumps(nested)) == nested
    assert protos.AttrValue.ListValue.__qualname__ == "AttrValue.ListValue"
    assert text_format.Parse(text_format.MessageToString(graph), protos.GraphDef()) == graph
    assert json_format.Parse(json_format.MessageToJson(graph), protos.GraphDef()) == graph


def test_unknown_fields_survive():
    # Field 99 (a string), which a later TensorFlow might add.
    data = protos.VersionDef(producer=1).SerializeToString() + b"\x9a\x06\x02hi"
    assert protos.VersionDef.FromString(data).SerializeToString() == data


def test_proto2_presence_in_debug_info():
    line = protos.GraphDebugInfo.FileLineCol()
    assert not line.HasField("line")
    line.line = 0
    assert line.HasField("line") and line.SerializeToString() == b"\x10\x00"


def test_coerce_and_parse():
    graph = graph_def()
    assert protos.coerce(graph, protos.GraphDef) is graph
    assert protos.coerce(graph.SerializeToString(), protos.GraphDef) == graph
    with pytest.raises(TypeError, match="graph_def must be a GraphDef proto, got NodeDef"):
        protos.coerce(graph.node[0], protos.GraphDef, "graph_def")
    with pytest.raises(TypeError, match="must be a GraphDef proto, got str"):
        protos.coerce("x", protos.GraphDef)
    with pytest.raises(errors.DataLossError, match=r"Can't parse in model\.pb as GraphDef"):
        protos.parse(b"\x0a\xff", protos.GraphDef, "model.pb")


def test_any_carries_tensorflows_name():
    packed = protos.pack_any(protos.NodeDef(name="n"))
    assert packed.type_url == "type.googleapis.com/tensorflow.NodeDef"
    assert protos.unpack_any(packed, protos.NodeDef) == protos.NodeDef(name="n")
    assert protos.unpack_any(packed, protos.GraphDef) is None
    ours = protos.MetaGraphDef().meta_info_def.any_info
    ours.Pack(protos.NodeDef(name="m"))
    unpacked = protos.unpack_any(ours, protos.NodeDef)
    assert unpacked is not None and unpacked.name == "m"
    assert protos.tensorflow_name(protos.AttrValue.ListValue) == "tensorflow.AttrValue.ListValue"


def test_what_is_not_asked_for_is_not_loaded():
    code = (
        "import sys; from penstock.formats.protos import GraphDef; GraphDef();"
        "print(sorted(m.rpartition('.')[2] for m in sys.modules if m.startswith('penstock.formats.proto.')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert out.strip() == "['debug_info_pb2', 'framework_pb2', 'names']"


def test_generated_files_are_fresh():
    pytest.importorskip("grpc_tools")
    command = [sys.executable, ROOT / "scripts/gen_protos.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_pure_python_protobuf_works_too():
    code = (
        "from penstock.formats import protos as p; from google.protobuf.internal import api_implementation as a;"
        "assert a.Type() == 'python'; v = p.AttrValue(); v.list.i.append(1);"
        "assert p.AttrValue.ListValue(i=[1]) == v.list and p.ConfigProto.Experimental();"
        "print(p.AttrValue.FromString(v.SerializeToString()).list.i[0])"
    )
    env = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python", "PATH": ""}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, check=False)
    assert done.stdout.strip() == "1", done.stderr
