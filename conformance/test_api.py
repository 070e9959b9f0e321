"""The public surface and small API programs under both packages.

Signatures of everything that exists in both must agree, but for the differences in ALLOWED, each with its reason. Programs must give
equal values, build equal nodes, and raise errors of equal classes.
"""

from __future__ import annotations

import inspect
import re
import warnings

import pytest

from conformance import api_programs as programs
from conformance import api_sessions, api_training, surface  # noqa: F401 - the programs register themselves
from conformance.both import compare, penstock, run_both, same_structure, tensorflow

pytest.importorskip("tensorflow")

# (name, difference) as regular expressions -> why it is so.
ALLOWED = {
    r"(dtypes\.)?DType|TensorShape|\w+Spec": {
        r"\.(cast|experimental_\w+|flatten|from_tensors|to_tensors|placeholder_value) is missing": "TF2's tracing protocol",
        r"\.most_specific_common_supertype: .*": "TF2's tracing protocol",
        r"\.from_value is missing": "TF2's tracing protocol",
        r"\.value_type is a method, in TensorFlow it is not": "a class either way: TF computes it",
        r"\.is_compatible_with: .*": "specs are not in TF1; the argument goes by position",
    },
    r"Graph": {
        r"\.(Dismantle|get|new_operations|num_operations|op_def_for_type|operations) is missing": "methods of TF's C++ base class",
        r"\.as_graph_def: has no argument 'use_pybind11_proto'": "about TF's own C++ binding",
    },
    r"Operation": {r"\.(experimental_set_type|from_node_def) is missing": "about TF's own C++ binding"},
    r"Variable": {r"\.\w+ is missing": "defined by both kinds of variables, not by their common base"},
    r"train\.\w+Optimizer": {
        r"\.apply_gradients: has no argument 'skip_gradients_aggregation'": "TF2's Keras optimizers",
        r"has no argument 'use_own_namescope_for_non_slot_vars'": "not in TF1",
    },
    r"train\.Optimizer": {r"\.apply_gradients: has no argument 'skip_gradients_aggregation'": "TF2's Keras optimizers"},
    r"lookup\.experimental\.\w+": {r"\.lookup: .*": "not in TF1"},
}


def allowed(name: str, difference: str) -> bool:
    return any(
        re.fullmatch(names, name) and any(re.fullmatch(text, difference) for text in reasons) for names, reasons in ALLOWED.items()
    )


def all_differences(name: str, ours: object, theirs: object) -> list[str]:
    found = list(surface.differences(ours, theirs))
    if inspect.isclass(ours) and inspect.isclass(theirs) and not is_message(theirs):
        mine = surface.methods(ours)
        for method in surface.methods(theirs):
            if method not in mine:
                found.append(f".{method} is missing")
                continue
            a, b = getattr(ours, method), getattr(theirs, method)
            if callable(a) != callable(b):
                found.append(f".{method} is {'a method' if callable(a) else 'a value'}, in TensorFlow it is not")
            elif callable(a):
                found += [f".{method}: {text}" for text in surface.differences(a, b)]
    return found


def is_message(value: object) -> bool:
    return inspect.isclass(value) and hasattr(value, "DESCRIPTOR")


@pytest.fixture(scope="module")
def surfaces():
    return surface.penstock_surface(), surface.tensorflow_surface(tensorflow())


def test_signatures(surfaces):
    ours, theirs = surfaces
    both = sorted(ours.keys() & theirs.keys())
    assert len(both) > 1000
    rows = [f"{name}: {text}" for name in both for text in all_differences(name, ours[name], theirs[name]) if not allowed(name, text)]
    assert rows == [], f"{len(rows)} differences:\n" + "\n".join(rows)


def test_every_allowed_difference_still_exists(surfaces):
    ours, theirs = surfaces
    seen = [(name, text) for name in ours.keys() & theirs.keys() for text in all_differences(name, ours[name], theirs[name])]
    for names, reasons in ALLOWED.items():
        for text in reasons:
            assert any(re.fullmatch(names, n) and re.fullmatch(text, t) for n, t in seen), f"{names}: {text} is no difference any more"


def test_the_list_of_absent_names_is_fresh(surfaces):
    ours, theirs = surfaces
    missing = sorted(theirs.keys() - ours.keys())
    listed = surface.absent()
    assert listed == missing, f"to be added: {sorted(set(missing) - set(listed))}\nto be removed: {sorted(set(listed) - set(missing))}"


def test_names_that_only_penstock_has_are_known(surfaces):
    """What is public here and not in tf.compat.v1 must be meant: messages, sub-byte types, TF 1.x names that 2.x dropped."""
    ours, theirs = surfaces
    extra = {n for n in ours.keys() - theirs.keys() if n.split(".")[0] not in surface.ELSEWHERE | {"contrib"}}
    messages = {n for n in extra if is_message(ours[n])}
    types = {n for n in extra if re.fullmatch(r"(dtypes\.)?(u?int[24]|float[48]_\w+)", n)}
    unknown = {n for n in extra - messages - types - PENSTOCK_ONLY if n.rpartition(".")[0] not in NEED_KERAS}
    assert not unknown, sorted(unknown)


# TF 2 has these only together with Keras 2, so that they cannot be seen here.
NEED_KERAS = {"nn.rnn_cell", "layers", "layers.experimental"}
PENSTOCK_ONLY = {"Defun", "IndexedSlicesValue", "TensorHandle", "config.experimental.enable_op_determinism", "errors.make_error", "register_session_run_conversion_functions", "train.Timeline"}


# -- programs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_program(name):
    fn, feed, structure = programs.PROGRAMS[name]
    run_both(fn, feed)
    if structure:
        same_structure(fn)


def quietly(tf, fn):
    with tf.Graph().as_default(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fn(tf)


def plain_compare(ours, theirs, where):
    """Equal Python values; arrays within the usual tolerances."""
    if isinstance(theirs, str) or theirs is None or isinstance(theirs, bool):
        assert ours == theirs, f"{where}: {ours!r} for {theirs!r}"
    elif isinstance(theirs, (list, tuple)) and not hasattr(theirs, "_fields"):
        assert isinstance(ours, (list, tuple)) and len(ours) == len(theirs), f"{where}: {ours!r} for {theirs!r}"
        wrong = []
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            try:
                plain_compare(a, b, f"{where}[{i}]")
            except AssertionError as error:
                wrong.append(str(error))
        assert not wrong, "\n".join(wrong)
    else:
        compare(ours, theirs, where=where)


@pytest.mark.parametrize("name", programs.FACTS)
def test_facts(name):
    fn = programs.FACTS[name]
    plain_compare(quietly(penstock(), fn), quietly(tensorflow(), fn), name)


@pytest.mark.parametrize("name", programs.SEQUENCES)
def test_sequence(name):
    fn = programs.SEQUENCES[name]
    plain_compare(quietly(penstock(), fn), quietly(tensorflow(), fn), name)
