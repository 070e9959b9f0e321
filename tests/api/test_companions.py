"""Small companions of a TF1 program: versions, compat, logging, config, specs, templates, sorting; and that they are imported lazily."""

import logging
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import penstock as tf
from penstock.api import lazy
from penstock.api.export import resolve
from penstock.session import default_config

# -- names ------------------------------------------------------------------------------------------------------------


def test_every_lazy_name_is_there():
    for module, names in lazy.LAZY.items():
        for entry in names.split():
            public = entry.partition("=")[0]
            assert resolve(public) is not None, f"{module}: {public}"


def test_import_leaves_lazy_modules_alone():
    code = "import sys, penstock\nprint([m for m in sys.modules if m in penstock._api.LAZY_MODULES])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_lazy_names_are_listed():
    assert {"mean", "accuracy", "auc"} <= set(dir(tf.metrics)) and "flags" in dir(tf)
    assert tf.app.flags is tf.flags
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tf.metrics.nothing


def test_compat_v1_is_the_package():
    code = "import penstock.compat.v1 as tf, penstock\nfrom penstock.compat import v1\nprint(tf is penstock is v1, tf.compat.v1.placeholder is tf.placeholder)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "True True\n"


def test_versions():
    assert tf.__version__ == tf.VERSION == tf.version.VERSION and tf.VERSION.startswith("1.15")
    assert tf.version.GRAPH_DEF_VERSION == tf.GRAPH_DEF_VERSION


def test_compat_text():
    compat = tf.compat
    assert compat.as_bytes("é") == "é".encode() and compat.as_text(b"a") == compat.as_str("a") == "a"
    assert compat.as_bytes(bytearray(b"x")) == b"x" and compat.as_str_any(3) == "3" and compat.path_to_str(os) is os
    with pytest.raises(TypeError, match="Expected binary or unicode string, got 3"):
        compat.as_bytes(3)
    assert isinstance(np.int32(1), compat.integral_types) and compat.forward_compatible(2019, 1, 1)


def test_resource_loader():
    here = os.path.dirname(os.path.abspath(__file__))
    assert tf.resource_loader.get_data_files_path() == here
    assert tf.resource_loader.get_path_to_datafile("x") == os.path.join(here, "x")
    assert b"test_resource_loader" in tf.resource_loader.load_resource("test_companions.py")
    assert os.path.exists(os.path.join(tf.sysconfig.get_lib(), "__init__.py"))


# -- logging ----------------------------------------------------------------------------------------------------------


def test_logging_goes_through_the_logger_that_programs_know(caplog):
    before = tf.logging.get_verbosity()
    try:
        tf.logging.set_verbosity(tf.logging.INFO)
        with caplog.at_level(logging.INFO, logger="tensorflow"):
            tf.logging.info("loss = %.1f", 0.5)
            tf.logging.debug("hidden")
            tf.logging.warn("careful")
            for i in range(5):
                tf.logging.log_every_n(tf.logging.INFO, "every %d", 2, i)
            for i in range(5):
                tf.logging.log_first_n(tf.logging.INFO, "first %d", 2, i)
            tf.logging.log_if(tf.logging.ERROR, "no", False)
        assert [r.getMessage() for r in caplog.records] == [
            "loss = 0.5", "careful", "every 0", "every 2", "every 4", "first 0", "first 1",
        ]
        assert {r.name for r in caplog.records} == {"tensorflow"} and caplog.records[0].filename == "test_companions.py"
        assert tf.get_logger() is logging.getLogger("tensorflow")
    finally:
        tf.logging.set_verbosity(before)


def test_logging_writes_to_stderr_from_warnings_on():
    code = "import penstock as tf\ntf.logging.info('no')\ntf.logging.error('yes')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("", "ERROR:tensorflow:yes\n")


# -- config -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def clean_config():
    from penstock.api import config

    yield
    default_config.reset()
    config._visible.clear()
    config._logical.clear()


def test_config_reaches_sessions_that_are_given_none(clean_config):
    (cpu,) = tf.config.list_physical_devices("CPU")
    assert cpu == tf.config.PhysicalDevice("/physical_device:CPU:0", "CPU") and tf.config.list_physical_devices("TPU") == []
    tf.config.threading.set_inter_op_parallelism_threads(3)
    tf.config.set_soft_device_placement(True)
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    tf.config.optimizer.set_experimental_options({"constant_folding": False, "unknown": True})
    assert tf.config.threading.get_inter_op_parallelism_threads() == 3 and tf.config.get_soft_device_placement()
    assert tf.config.optimizer.get_experimental_options()["constant_folding"] is False
    with tf.Session() as s:
        assert [d.name[-5:] for d in s.list_devices()] == ["CPU:0", "CPU:1"]
        assert s._config.inter_op_parallelism_threads == 3
    assert [d.name for d in tf.config.list_logical_devices()] == ["/device:CPU:0", "/device:CPU:1"]
    with tf.Session(config=tf.ConfigProto()) as s:
        assert len(s.list_devices()) == 1


def test_config_errors(clean_config):
    (cpu,) = tf.config.list_physical_devices("CPU")
    with pytest.raises(ValueError, match="Unrecognized device"):
        tf.config.set_visible_devices("x")
    with pytest.raises(ValueError, match="Cannot set memory growth on non-GPU"):
        tf.config.experimental.set_memory_growth(cpu, True)
    with pytest.raises(ValueError, match="No matching devices found"):
        tf.config.experimental.get_memory_info("GPU:7")
    with pytest.raises(tf.errors.UnimplementedError):
        tf.config.run_functions_eagerly(True)
    tf.config.run_functions_eagerly(False)
    tf.config.set_visible_devices([], "GPU")
    assert tf.config.get_visible_devices() == [cpu]


def test_status_context():
    with tf.errors.raise_exception_on_not_ok_status() as status:
        assert status.code == tf.errors.OK
    with pytest.raises(tf.errors.NotFoundError, match="gone"), tf.errors.raise_exception_on_not_ok_status() as status:
        status.code, status.message = tf.errors.NOT_FOUND, "gone"


# -- specs ------------------------------------------------------------------------------------------------------------


def test_tensor_specs():
    spec = tf.TensorSpec([2, None], "float32", "n")
    assert (spec.shape.as_list(), spec.dtype, spec.name) == ([2, None], tf.float32, "n")
    assert spec == tf.TensorSpec([2, None], tf.float32, "n") != tf.TensorSpec([2, None]) and hash(spec) == hash(tf.TensorSpec([2, None], name="n"))
    assert spec.is_compatible_with(tf.zeros([2, 3])) and not spec.is_compatible_with(tf.zeros([3])) and not spec.is_compatible_with(tf.zeros([2, 3], tf.int32))
    assert tf.TensorSpec([2, 3]).is_subtype_of(tf.TensorSpec([None, 3])) and not tf.TensorSpec(None).is_subtype_of(tf.TensorSpec([3]))
    wider = tf.TensorSpec([2, 3]).most_specific_compatible_type(tf.TensorSpec([4, 3]))
    assert wider == tf.TensorSpec([None, 3])
    with pytest.raises(ValueError, match="No TypeSpec is compatible"):
        tf.TensorSpec([2]).most_specific_compatible_type(tf.TensorSpec([2], tf.int32))
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert tf.TensorSpec.from_tensor(tf.zeros([2], name="z")) == tf.TensorSpec([2], tf.float32, "z")


def test_specs_of_values():
    sparse = tf.SparseTensor([[0, 0]], [1.0], [2, 3])
    assert tf.type_spec_from_value(sparse) == tf.SparseTensorSpec([2, 3], tf.float32)
    assert tf.SparseTensorSpec([None, 3]).is_compatible_with(sparse)
    slices = tf.IndexedSlices(tf.zeros([2, 3]), tf.constant([0, 1]))
    assert tf.type_spec_from_value(slices) == tf.IndexedSlicesSpec([None, 3], tf.float32, tf.int32, None, [2])
    assert isinstance(tf.type_spec_from_value("x"), tf.TensorSpec)
    with pytest.raises(TypeError):
        tf.TypeSpec()


# -- templates and sorting --------------------------------------------------------------------------------------------


def test_a_template_makes_its_variables_once():
    def scale(x, by):
        return x * by * tf.get_variable("w", [], initializer=tf.ones_initializer())

    t = tf.make_template("scale", scale, by=3.0)
    u = tf.make_template("scale", scale, by=1.0)
    assert t.variable_scope is None and t.variables == []
    a, b = t(tf.constant(1.0)), t(tf.constant(2.0))
    u(1.0)
    assert [v.op.name for v in tf.global_variables()] == ["scale/w", "scale_1/w"]
    assert [v.op.name for v in t.trainable_variables] == ["scale/w"] and t.variable_scope_name == "scale/"
    with tf.Session() as s:
        s.run(tf.global_variables_initializer())
        assert s.run([a, b]) == [3.0, 6.0]


def test_templates_complain():
    fresh = tf.make_template("t", lambda: tf.Variable(1.0))
    fresh()
    with pytest.raises(ValueError, match="Trainable variable created when calling a template after the first time"):
        fresh()
    broken = tf.make_template("t", lambda: [][1])
    with pytest.raises(IndexError, match="originally defined at"):
        broken()


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.int8, np.int64])
def test_sort_and_argsort(dtype):
    x = np.random.RandomState(0).randint(0, 100, (3, 4, 5)).astype(dtype)
    p = tf.placeholder(tf.as_dtype(dtype))
    with tf.Session() as s:
        for axis in (-1, 0, 1):
            up, down, dynamic, order = s.run(
                [tf.sort(x, axis), tf.sort(x, axis, "DESCENDING"), tf.sort(p, axis), tf.argsort(x, axis, stable=True)], {p: x}
            )
            np.testing.assert_array_equal(up, np.sort(x, axis))
            np.testing.assert_array_equal(down, np.flip(np.sort(x, axis), axis))
            np.testing.assert_array_equal(dynamic, up)
            np.testing.assert_array_equal(order, np.argsort(x, axis, kind="stable"))


def test_sort_takes_the_smallest_integer():
    with tf.Session() as s:
        assert s.run(tf.sort(tf.constant([127, -128, 0], tf.int8))).tolist() == [-128, 0, 127]
    with pytest.raises(ValueError, match="`direction` should be one of"):
        tf.sort([1], direction="up")
    with pytest.raises(ValueError, match="`axis` must be a constant scalar"):
        tf.sort([1], axis=tf.placeholder(tf.int32))
