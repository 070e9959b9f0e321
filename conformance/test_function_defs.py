"""FunctionDefs written by hand: both packages read them alike, and refuse the same ones."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

from conformance.both import compare, penstock, tensorflow

pytest.importorskip("tensorflow")

X = np.float32([1.5, -2.0])
PLACEHOLDER = 'node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { dim { size: 2 } } } } }'
FLOAT = 'attr { key: "T" value { type: DT_FLOAT } }'


def graph(tf, text):
    result = tf.Graph()
    graph_def = text_format.Parse(text + " versions { producer: 1900 }", tf.GraphDef())
    with result.as_default():
        tf.import_graph_def(graph_def, name="")
    return result


def outcome(tf, text, fetches):
    """(values, None), or (None, (class, phase)) if something raised."""
    try:
        made = graph(tf, text)
    except Exception as error:
        return None, (type(error).__name__, "import", str(error))
    try:
        with tf.Session(graph=made) as session:
            return session.run(fetches, {"x:0": X}), None
    except Exception as error:
        return None, (type(error).__name__, "run", str(error))


# -- sound ones -------------------------------------------------------------------------------------------------------------

ELEMENTS = """
library { function {
  signature { name: "f" input_arg { name: "xs" type: DT_FLOAT number_attr: "N" } output_arg { name: "y" type: DT_FLOAT } attr { name: "N" type: "int" } }
  node_def { name: "sub" op: "Sub" input: "xs:1" input: "xs:0" attr { key: "T" value { type: DT_FLOAT } } }
  ret { key: "y" value: "sub:z:0" } } }
node { name: "n" op: "Neg" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "y" op: "f" input: "x" input: "n" attr { key: "N" value { i: 2 } } }
"""

PASSED_FUNCTION = """
library {
  function { signature { name: "f" input_arg { name: "a" type: DT_FLOAT } output_arg { name: "o" type: DT_FLOAT } }
    node_def { name: "n" op: "Neg" input: "a" attr { key: "T" value { type: DT_FLOAT } } } ret { key: "o" value: "n:y:0" } }
  function { signature { name: "g" input_arg { name: "a" type: DT_FLOAT } output_arg { name: "o" type: DT_FLOAT } attr { name: "h" type: "func" } }
    node_def { name: "c" op: "PartitionedCall" input: "a" attr { key: "Tin" value { list { type: DT_FLOAT } } }
               attr { key: "Tout" value { list { type: DT_FLOAT } } } attr { key: "f" value { placeholder: "h" } } }
    ret { key: "o" value: "c:output:0" } } }
node { name: "y" op: "g" input: "x" attr { key: "h" value { func { name: "f" } } } }
"""

CONTROLS = """
library { function {
  signature { name: "f" input_arg { name: "a" type: DT_FLOAT } input_arg { name: "v" type: DT_RESOURCE } output_arg { name: "o" type: DT_FLOAT } is_stateful: true
              control_output: "write" }
  node_def { name: "add" op: "AssignAddVariableOp" input: "v" input: "a" attr { key: "dtype" value { type: DT_FLOAT } } }
  node_def { name: "read" op: "ReadVariableOp" input: "v" input: "^add" attr { key: "dtype" value { type: DT_FLOAT } } }
  node_def { name: "twice" op: "AssignAddVariableOp" input: "v" input: "a" input: "^read" attr { key: "dtype" value { type: DT_FLOAT } } }
  ret { key: "o" value: "read:value:0" } control_ret { key: "write" value: "twice" } attr { key: "_noinline" value { b: NOINLINE } } } }
node { name: "v" op: "VarHandleOp" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { dim { size: 2 } } } }
       attr { key: "shared_name" value { s: "v" } } }
node { name: "init" op: "AssignVariableOp" input: "v" input: "x" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "y" op: "StatefulPartitionedCall" input: "x" input: "v" input: "^init" attr { key: "Tin" value { list { type: DT_FLOAT type: DT_RESOURCE } } }
       attr { key: "Tout" value { list { type: DT_FLOAT } } } attr { key: "f" value { func { name: "f" } } } }
node { name: "after" op: "ReadVariableOp" input: "v" input: "^y" attr { key: "dtype" value { type: DT_FLOAT } } }
"""

# Only a data edge leads from the call to the read: the call's effects have happened all the same.
DATA_ONLY = CONTROLS.replace('input: "^y"', "") + """
node { name: "zero" op: "ZerosLike" input: "y" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "bump" op: "AssignAddVariableOp" input: "v" input: "zero" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "later" op: "ReadVariableOp" input: "v" input: "^bump" attr { key: "dtype" value { type: DT_FLOAT } } }
"""

SOUND = {
    "elements": (ELEMENTS, ["y:0"]),
    "passed function": (PASSED_FUNCTION, ["y:0"]),
    "effects, inlined": (CONTROLS.replace("NOINLINE", "false"), ["y:0", "after:0"]),
    "effects, called": (CONTROLS.replace("NOINLINE", "true"), ["y:0", "after:0"]),
    "effects behind data, called": (DATA_ONLY.replace("NOINLINE", "true"), ["later:0"]),
}


@pytest.mark.parametrize("name", SOUND)
def test_runs_alike(name):
    text, fetches = SOUND[name]
    theirs, refused = outcome(tensorflow(), PLACEHOLDER + text, fetches)
    assert refused is None, refused
    ours, refused = outcome(penstock(), PLACEHOLDER + text, fetches)
    assert refused is None, refused
    compare(ours, theirs)
    # What is read can be written, and TensorFlow reads that.
    again = graph(penstock(), PLACEHOLDER + text).as_graph_def().SerializeToString()
    tf = tensorflow()
    graph_def = tf.GraphDef()
    graph_def.ParseFromString(again)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        compare(session.run(fetches, {"x:0": X}), theirs)


def test_effects_behind_data_inlined():
    """TensorFlow may lose the second write when it inlines; here a call's effects have happened when its results are there."""
    values, refused = outcome(penstock(), PLACEHOLDER + DATA_ONLY.replace("NOINLINE", "false"), ["later:0"])
    assert refused is None
    np.testing.assert_allclose(values[0], X * 3)


# -- broken ones ------------------------------------------------------------------------------------------------------------

NODE = f'node_def {{ name: "n" op: "Neg" input: "a" {FLOAT} }}'
RET = 'ret { key: "o" value: "n:y:0" }'
CALL = 'attr { key: "f" value { func { name: "f" } } } attr { key: "Tin" value { list { type: DT_FLOAT } } } attr { key: "Tout" value { list { type: DT_FLOAT } } }'


def broken(signature="", nodes=NODE, ret=RET, more="", call=CALL):
    return f"""{PLACEHOLDER} node {{ name: "y" op: "PartitionedCall" input: "x" {call} }}
    library {{ function {{ signature {{ name: "f" input_arg {{ name: "a" type: DT_FLOAT }} output_arg {{ name: "o" type: DT_FLOAT }} {signature} }}
    {nodes} {ret} }} {more} }}"""


BROKEN = {
    "no ret": broken(ret=""),
    "ret of an unknown node": broken(ret='ret { key: "o" value: "zzz:y:0" }'),
    "ret of an unknown output": broken(ret='ret { key: "o" value: "n:zzz:0" }'),
    "ret beyond the output": broken(ret='ret { key: "o" value: "n:y:3" }'),
    "ret of another type": broken(signature='output_arg { name: "p" type: DT_INT32 }', ret=RET + 'ret { key: "p" value: "n:y:0" }'),
    "unknown input": broken(nodes=NODE.replace('input: "a"', 'input: "b"')),
    "input without an output's name": broken(nodes=NODE + f'node_def {{ name: "m" op: "Neg" input: "n" {FLOAT} }}'),
    "unknown control input": broken(nodes=NODE.replace('input: "a"', 'input: "a" input: "^zz"')),
    "type mismatch": broken(nodes=NODE.replace("DT_FLOAT", "DT_INT32")),
    "node twice": broken(nodes=NODE + NODE),
    "node called like an argument": broken(nodes=NODE.replace('"n"', '"a"'), ret='ret { key: "o" value: "a:y:0" }'),
    "cycle": broken(nodes=NODE.replace('input: "a"', 'input: "m:y:0"') + f'node_def {{ name: "m" op: "Neg" input: "n:y:0" {FLOAT} }}'),
    "placeholder without value": broken(nodes=NODE.replace("type: DT_FLOAT", 'placeholder: "T"')),
    "function twice": broken(more='function { signature { name: "f" } }'),
    "function called like an op": broken(more='function { signature { name: "Neg" } }'),
    "unknown gradient function": broken(more='gradient { function_name: "f" gradient_func: "nope" }'),
    "argument twice": broken(signature='input_arg { name: "a" type: DT_FLOAT }'),
    "result of another type": broken(call=CALL.replace('"Tout" value { list { type: DT_FLOAT', '"Tout" value { list { type: DT_INT32')),
}


@pytest.mark.parametrize("name", BROKEN)
def test_refused_alike(name):
    _, theirs = outcome(tensorflow(), BROKEN[name], "y:0")
    _, ours = outcome(penstock(), BROKEN[name], "y:0")
    assert theirs is not None and ours is not None
    assert ours[:2] == theirs[:2], (ours, theirs)
