"""Library functions: FunctionDefs read and written, bodies per attribute value, shapes through calls, captures, broken definitions."""

import numpy as np
import pytest
from google.protobuf import text_format

import penstock as tf
from penstock.formats.attr_value import FuncAttr, TensorAttr
from penstock.graph.func_graph import FuncGraph, build, make_function
from penstock.graph.function import Function, attr_key, closure

X = np.float32([1.5, -2.0])
PLACEHOLDER = 'node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { dim { size: 2 } } } } }'
FLOAT = 'attr { key: "T" value { type: DT_FLOAT } }'
NEG = f'node_def {{ name: "n" op: "Neg" input: "a" {FLOAT} }}'
RET = 'ret { key: "o" value: "n:y:0" }'


def load(text):
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(text_format.Parse(PLACEHOLDER + text, tf.GraphDef()), name="")
    return graph


def run(graph, fetches, **options):
    with tf.Session(graph=graph, **options) as session:
        return session.run(fetches, {"x:0": X})


def function(name, nodes=NEG, ret=RET, more=""):
    return f"""function {{ signature {{ name: "{name}" input_arg {{ name: "a" type: DT_FLOAT }} output_arg {{ name: "o" type: DT_FLOAT }} }}
    {nodes} {ret} {more} }}"""


def call(op="f", name="y", more=""):
    return f'node {{ name: "{name}" op: "{op}" input: "x" {more} }}'


# -- reading ------------------------------------------------------------------------------------------------------------------


def test_arguments_of_many_tensors():
    graph = load("""
    library { function {
      signature { name: "f" input_arg { name: "xs" type_attr: "T" number_attr: "N" } output_arg { name: "sum" type_attr: "T" }
                  output_arg { name: "all" type_attr: "T" number_attr: "N" } attr { name: "T" type: "type" } attr { name: "N" type: "int" } }
      node_def { name: "add" op: "AddN" input: "xs" attr { key: "T" value { placeholder: "T" } } attr { key: "N" value { placeholder: "N" } } }
      node_def { name: "split" op: "Unpack" input: "xs:1" attr { key: "T" value { placeholder: "T" } } attr { key: "num" value { placeholder: "N" } } }
      ret { key: "sum" value: "add:sum:0" } ret { key: "all" value: "split:output" } } }
    node { name: "y" op: "f" input: "x" input: "x" attr { key: "T" value { type: DT_FLOAT } } attr { key: "N" value { i: 2 } } }
    """)
    total, first, second = run(graph, ["y:0", "y:1", "y:2"])
    np.testing.assert_array_equal(total, X * 2)
    assert (first, second) == (X[0], X[1])
    assert [t.shape.as_list() for t in graph.get_operation_by_name("y").outputs] == [[2], [], []]


def test_arguments_of_many_types():
    graph = load("""
    library { function {
      signature { name: "f" input_arg { name: "xs" type_list_attr: "Ts" } output_arg { name: "ys" type_list_attr: "Ts" } attr { name: "Ts" type: "list(type)" } }
      node_def { name: "same" op: "IdentityN" input: "xs" attr { key: "T" value { placeholder: "Ts" } } }
      ret { key: "ys" value: "same:output" } } }
    node { name: "i" op: "Cast" input: "x" attr { key: "SrcT" value { type: DT_FLOAT } } attr { key: "DstT" value { type: DT_INT32 } } }
    node { name: "y" op: "f" input: "x" input: "i" attr { key: "Ts" value { list { type: DT_FLOAT type: DT_INT32 } } } }
    """)
    a, b = run(graph, ["y:0", "y:1"])
    np.testing.assert_array_equal(a, X)
    np.testing.assert_array_equal(b, np.int32([1, -2]))


POLYMORPHIC = """
library { function {
  signature { name: "f" input_arg { name: "a" type_attr: "T" } output_arg { name: "o" type_attr: "T" } attr { name: "T" type: "type" DEFAULT } }
  node_def { name: "n" op: "Neg" input: "a" attr { key: "T" value { placeholder: "T" } } }
  ret { key: "o" value: "n:y:0" } } }
node { name: "i" op: "Cast" input: "x" attr { key: "SrcT" value { type: DT_FLOAT } } attr { key: "DstT" value { type: DT_INT32 } } }
node { name: "y" op: "f" input: "x" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "z" op: "f" input: "i" attr { key: "T" value { type: DT_INT32 } } }
node { name: "p" op: "PartitionedCall" input: "i" attr { key: "Tin" value { list { type: DT_INT32 } } } attr { key: "Tout" value { list { type: DT_INT32 } } }
       attr { key: "f" value { func { name: "f" attr { key: "T" value { type: DT_INT32 } } } } } }
"""


@pytest.mark.parametrize("level", [-1, 0])
def test_bodies_by_type(level):
    graph = load(POLYMORPHIC.replace("DEFAULT", ""))
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.opt_level = level
    y, z, p = run(graph, ["y:0", "z:0", "p:0"], config=config)
    np.testing.assert_array_equal(y, -X)
    np.testing.assert_array_equal(z, np.int32([-1, 2]))
    np.testing.assert_array_equal(p, z)
    f = graph.functions["f"]
    assert f.body({"T": tf.int32}) is f.body({"T": tf.int32}) is not f.body({"T": tf.float32})


def test_default_of_a_functions_attribute():
    text = POLYMORPHIC.replace("DEFAULT", "default_value { type: DT_FLOAT }").replace('name: "y" op: "f" input: "x" attr { key: "T" value { type: DT_FLOAT } }', 'name: "y" op: "f" input: "x"')
    np.testing.assert_array_equal(run(load(text), "y:0"), -X)


def test_missing_attribute():
    f = load(POLYMORPHIC.replace("DEFAULT", "")).functions["f"]
    with pytest.raises(tf.errors.NotFoundError, match="attr not found: T"):
        f.body({})


def test_shapes_go_through_calls():
    nodes = 'node_def { name: "n" op: "f1" input: "a" }'
    graph = load(call("f0") + call("f0", "z", 'attr { key: "_disable_call_shape_inference" value { b: true } }') + f"library {{ {function('f0', nodes, RET.replace('n:y', 'n:o'))} {function('f1')} }}")
    assert graph.get_tensor_by_name("y:0").shape == [2]
    assert graph.get_tensor_by_name("z:0").shape.rank is None
    # The body itself knows nothing of its argument.
    body = graph.functions["f1"].body()
    assert body.find("n").outputs[0].shape.rank is None


def test_attr_keys_tell_values_apart():
    a = np.arange(5000, dtype=np.float32)
    b = a.copy()
    b[2500] = -1
    values = [1, 1.0, True, b"1", [1], [], tf.float32, tf.TensorShape(None), tf.TensorShape([None]), FuncAttr("f"), FuncAttr("f", {"T": tf.int32}),
              TensorAttr(tf.float32, a), TensorAttr(tf.float32, b)]  # fmt: skip
    assert len({attr_key(v) for v in values}) == len(values)
    assert attr_key({"a": [tf.TensorShape([None, 2])]}) == attr_key({"a": [tf.TensorShape([None, 2])]})


def test_closure_and_adding_to_a_graph():
    nodes = 'node_def { name: "n" op: "PartitionedCall" input: "a" attr { key: "f" value { func { name: "f1" } } } attr { key: "Tin" value { list { type: DT_FLOAT } } } attr { key: "Tout" value { list { type: DT_FLOAT } } } }'
    graph = load(f"library {{ {function('f0', nodes, RET.replace('n:y', 'n:output'))} {function('f1')} {function('f2')} }}")
    f0 = graph.functions["f0"]
    assert {f.name for f in closure(["f0"], graph.functions)} == {"f0", "f1"}
    other = tf.Graph()
    f0.add_to_graph(other)
    assert set(other.functions) == {"f0", "f1"}
    with pytest.raises(ValueError, match="different function with the same name"):
        Function.from_proto(graph.functions["f2"].to_proto(), other)  # fine by itself
        other._add_function(load(f"library {{ {function('f1', NEG.replace('Neg', 'Abs'))} }}").functions["f1"])


def test_colocation_with_nodes_that_are_not_there():
    nodes = NEG.replace(FLOAT, FLOAT + 'attr { key: "_class" value { list { s: "loc:@elsewhere" s: "loc:@a" } } }')
    graph = load(call() + f"library {{ {function('f', nodes)} }}")
    np.testing.assert_array_equal(run(graph, "y:0"), -X)


# -- broken definitions ---------------------------------------------------------------------------------------------------------

BROKEN = {
    "Return o missing": function("f", ret=""),
    "Return o -> zzz:y:0 is not found": function("f", ret='ret { key: "o" value: "zzz:y:0" }'),
    "Return o -> n:y:3 is not found": function("f", ret='ret { key: "o" value: "n:y:3" }'),
    "Return o -> n is not found": function("f", ret='ret { key: "o" value: "n" }'),
    "input b is not found": function("f", NEG.replace('"a"', '"b"')),
    "input a:1 is not found": function("f", NEG.replace('"a"', '"a:1"')),
    "is not found. In {{node n}}": function("f", NEG.replace('input: "a"', 'input: "a" input: "^zz"')),
    "missing attr 'T'": function("f", NEG.replace(FLOAT, "")),
    "incompatible with expected int32": function("f", NEG.replace("DT_FLOAT", "DT_INT32")),
    "Node 'n' is not unique": function("f", NEG + NEG),
    "Node 'a' is not unique": function("f", NEG.replace('"n"', '"a"'), 'ret { key: "o" value: "a:y:0" }'),
    "cycle": function("f", f'node_def {{ name: "n" op: "Neg" input: "n:y:0" {FLOAT} }}'),
    "Failed to bind all placeholders in $T": function("f", NEG.replace("type: DT_FLOAT", 'placeholder: "T"')),
    "Invalid ret types o": function("f", 'node_def { name: "n" op: "Shape" input: "a" attr { key: "T" value { type: DT_FLOAT } } }', 'ret { key: "o" value: "n:output:0" }'),
    "needs a signature with a name": "function { signature { } }" + function("f"),
    "different function with the same name": function("f") + function("f", NEG.replace("Neg", "Abs")),
    "an op with the same name": function("f") + function("Neg"),
    "missing 'nope' FunctionDef": function("f") + 'gradient { function_name: "f" gradient_func: "nope" }',
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_definitions_are_refused_when_imported(message):
    with pytest.raises(ValueError) as refused:
        load(call() + f"library {{ {BROKEN[message]} }}")
    assert message in str(refused.value)


def test_broken_definitions_do_not_matter_if_nobody_calls_them():
    graph = load(call("g") + f"library {{ {function('f', NEG.replace(FLOAT, ''))} {function('g')} }}")
    np.testing.assert_array_equal(run(graph, "y:0"), -X)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Function 'f': .*missing attr 'T'"):
        graph.functions["f"].body()


def test_unknown_op_in_a_body_is_an_error_of_the_call_only():
    graph = load(call("f") + call("g", "z") + f"library {{ {function('f', NEG.replace('Neg', 'NoSuchOp'))} {function('g')} }}")
    np.testing.assert_array_equal(run(graph, "z:0"), -X)
    with pytest.raises(tf.errors.NotFoundError, match="'NoSuchOp'.*needed by function 'f'"):
        run(graph, "y:0")


def calling(name, other, times=1):
    nodes = "".join(f'node_def {{ name: "n{i}" op: "{other}" input: "{"a" if i == 0 else f"n{i - 1}:o:0"}" }}' for i in range(times))
    return function(name, nodes, f'ret {{ key: "o" value: "n{times - 1}:o:0" }}')


def test_a_function_that_calls_itself():
    graph = load(call() + f"library {{ {calling('f', 'f')} }}")
    with pytest.raises(tf.errors.ResourceExhaustedError, match="Does it call itself without end"):
        run(graph, "y:0")


def test_two_functions_that_call_each_other():
    graph = load(call("f0") + f"library {{ {calling('f0', 'f1')} {calling('f1', 'f0')} }}")
    with pytest.raises(tf.errors.ResourceExhaustedError):
        run(graph, "y:0")


def test_a_long_chain_of_calls():
    library = " ".join(calling(f"f{i}", f"f{i + 1}") for i in range(400)) + function("f400")
    np.testing.assert_array_equal(run(load(call("f0") + f"library {{ {library} }}"), "y:0"), -X)


def test_calls_that_would_fill_the_memory_are_not_inlined():
    library = " ".join(calling(f"f{i}", f"f{i + 1}", 2) for i in range(60)) + function("f60")
    graph = load(call("f0") + f"library {{ {library} }}")
    with tf.Session(graph=graph) as session, pytest.raises(tf.errors.DeadlineExceededError):
        session.run("y:0", {"x:0": X}, options=tf.RunOptions(timeout_in_ms=300))


# -- writing --------------------------------------------------------------------------------------------------------------------


def built(fn, names=("x",), **options):
    with tf.Graph().as_default():
        graph = FuncGraph("f")
        build(graph, fn, names, [tf.float32] * len(names))
        return make_function(graph, "f", **options)


def test_names_are_those_that_tensorflow_gives():
    def fn(x, Y):
        z = tf.add(x, Y, name="Foo/bar")
        return z, x - Y, x, z

    proto = built(fn, ("x", "Y")).to_proto()
    assert [a.name for a in proto.signature.input_arg] == ["x_0", "y"]
    assert [a.name for a in proto.signature.output_arg] == ["foo_bar", "sub", "x", "foo_bar_0"]
    assert dict(proto.ret) == {"foo_bar": "Foo/bar:z:0", "sub": "sub_0:z:0", "x": "x_0", "foo_bar_0": "Foo/bar:z:0"}
    assert [n.name for n in proto.node_def] == ["Foo/bar", "sub_0"]


def test_definition_reads_back_as_itself():
    def fn(x):
        a, b = tf.split(x, 2)
        with tf.control_dependencies([a, x]):
            c = tf.constant(3.0)
        return tf.concat([a, b, [c]], 0)

    first = built(fn)
    again = Function.from_proto(first.to_proto())
    assert [op.type for op in again.body()] == [op.type for op in first.body()]
    assert sorted(c.name for c in again.body().find("Const").control_inputs) == ["split", "x"]
    assert again.same_as(first)


def test_colocation_follows_renamed_nodes():
    def fn(x):
        y = tf.negative(x, name="result")
        with tf.get_default_graph().colocate_with(y.op):
            tf.abs(y, name="beside")
        return y

    proto = built(fn).to_proto()
    assert proto.node_def[0].name == "result_0"
    assert list(proto.node_def[1].attr["_class"].list.s) == [b"loc:@result_0"]


def test_duplicate_or_missing_output_names():
    with pytest.raises(tf.errors.InvalidArgumentError, match="duplicate output names"):
        built(lambda x: (x, x), output_names=["a", "a"])
    with pytest.raises(ValueError, match="output names"):
        built(lambda x: (x, x), output_names=["a"])


def test_equal_functions_have_equal_names():
    def made(value):
        with tf.Graph().as_default():
            graph = FuncGraph("f")
            build(graph, lambda x: x * value, ["x"], [tf.float32])
            return make_function(graph, base_name="f").name

    assert made(2.0) == made(2.0) != made(3.0)


# -- captures -------------------------------------------------------------------------------------------------------------------


def test_captures_become_arguments_once():
    c = tf.constant([1.0, 2.0])
    graph = FuncGraph("f")
    build(graph, lambda x: x * c + c, ["x"], [tf.float32])
    assert graph.extra_inputs == [c]
    assert [t.op.name for t in graph.inputs] == ["x", "mul/Placeholder"]
    assert graph.inputs[1].shape == [2]


def test_capture_by_value_copies():
    c = tf.constant(2.0) * 3.0
    graph = FuncGraph("f", capture_by_value=True)
    build(graph, lambda x: x * c, ["x"], [tf.float32])
    assert [op.type for op in graph] == ["Placeholder", "Const", "Const", "Mul", "Mul"]
    assert graph.extra_inputs == []
    placeholder = tf.placeholder(tf.float32)
    with pytest.raises(ValueError, match="Cannot capture a placeholder"):
        build(FuncGraph("g", capture_by_value=True), lambda x: x * placeholder, ["x"], [tf.float32])
    with pytest.raises(ValueError, match="Cannot capture a stateful node"):
        drawn = tf.random_uniform([])
        build(FuncGraph("h", capture_by_value=True), lambda x: x * drawn, ["x"], [tf.float32])


def test_capture_by_value_of_a_long_computation():
    c = tf.constant(1.0)
    for _ in range(3000):
        c = tf.identity(c)
    graph = FuncGraph("f", capture_by_value=True)
    build(graph, lambda x: x + c, ["x"], [tf.float32])
    assert len(graph) == 3003


def test_reference_variables_cannot_be_written_from_inside():
    v = tf.get_variable("v", initializer=1.0, use_resource=False)
    with pytest.raises(TypeError, match=r"not compatible with expected types \(\[tf.float32_ref, tf.float32\]\)"):
        build(FuncGraph("f"), lambda x: tf.assign_add(v, x), ["x"], [tf.float32])


def test_captures_inside_of_control_flow():
    c = tf.constant(3.0)

    @tf.Defun(tf.float32)
    def f(x):
        return tf.cond(x > 0.0, lambda: x * c, lambda: c)

    with tf.Session() as session:
        assert session.run([f(2.0), f(-1.0)]) == [6.0, 3.0]
