"""TF's error classes: codes, both constructors, text, pickling."""

import copy
import pickle
import traceback

import pytest

from penstock import errors

CODES = {
    "CancelledError": 1,
    "UnknownError": 2,
    "InvalidArgumentError": 3,
    "DeadlineExceededError": 4,
    "NotFoundError": 5,
    "AlreadyExistsError": 6,
    "PermissionDeniedError": 7,
    "ResourceExhaustedError": 8,
    "FailedPreconditionError": 9,
    "AbortedError": 10,
    "OutOfRangeError": 11,
    "UnimplementedError": 12,
    "InternalError": 13,
    "UnavailableError": 14,
    "DataLossError": 15,
    "UnauthenticatedError": 16,
}


class FakeOp:
    name = "layer/MatMul"
    traceback = (traceback.FrameSummary("model.py", 12, "build", line="y = tf.matmul(a, b)"),)
    _original_op = None


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_class_and_code(name, code):
    cls = getattr(errors, name)
    error = cls(None, None, "text")
    assert isinstance(error, errors.OpError)
    assert (error.message, error.error_code, error.op, error.node_def) == ("text", code, None, None)
    assert errors.exception_type_from_error_code(code) is cls
    assert errors.error_code_from_exception_type(cls) == code
    constant = "".join("_" + c if c.isupper() else c for c in name.removesuffix("Error"))[1:].upper()
    assert getattr(errors, constant) == code


def test_there_are_no_other_codes():
    assert errors.OK == 0
    for code in (0, 17, 99):
        with pytest.raises(KeyError):
            errors.exception_type_from_error_code(code)
    assert errors.error_code_from_exception_type(ValueError) == errors.UNKNOWN
    assert errors.error_code_from_exception_type(errors.OpError) == errors.UNKNOWN


def test_message_alone_is_enough():
    error = errors.NotFoundError("no such key")
    assert (error.message, error.node_def, error.op, error.error_code) == ("no such key", None, None, errors.NOT_FOUND)
    assert str(error) == "no such key"
    assert errors.NotFoundError(message="m").message == "m"
    assert errors.NotFoundError("").message == ""


@pytest.mark.parametrize("args", [(), (None, None), (3,), ("node", "op")])
def test_a_message_is_needed(args):
    with pytest.raises(TypeError, match="needs a message"):
        errors.InternalError(*args)


def test_base_class_and_payloads():
    error = errors.OpError("node", None, "m", 3, {"key": b"value"})
    assert (error.node_def, error.error_code, error.experimental_payloads) == ("node", 3, {"key": b"value"})
    assert errors.AbortedError(None, None, "m").experimental_payloads == {}


def test_text_tells_where_the_op_was_created():
    text = str(errors.InvalidArgumentError(None, FakeOp, "bad shapes"))
    assert text.startswith("bad shapes\n\nOriginal stack trace for 'layer/MatMul':\n")
    assert "model.py" in text and "y = tf.matmul(a, b)" in text

    class Derived(FakeOp):
        name = "grad"
        _original_op = FakeOp

    assert "...which was originally created as op 'layer/MatMul', defined at:" in str(
        errors.InvalidArgumentError(None, Derived, "m")
    )


def test_story_follows_the_message():
    error = errors.InvalidArgumentError("bad shapes")
    error.story.append("inputs: float32[2,3], float32[4,5]")
    error.story.append("hint: transpose the second input")
    assert str(error) == "bad shapes\n\ninputs: float32[2,3], float32[4,5]\nhint: transpose the second input"
    assert error.message == "bad shapes"
    assert errors.InvalidArgumentError("another").story == []


def test_attach_keeps_what_is_known():
    error = errors.InternalError("m")
    assert error.attach(op=FakeOp, node_def="node") is error
    error.attach(op="other", node_def="other", message="m [[{{node x}}]]")
    assert (error.op, error.node_def, error.message) == (FakeOp, "node", "m [[{{node x}}]]")


def test_make_error():
    assert type(errors.make_error(errors.OUT_OF_RANGE, "end")) is errors.OutOfRangeError
    unknown = errors.make_error(77, "strange")
    assert type(unknown) is errors.UnknownError and unknown.message == "strange"


@pytest.mark.parametrize("roundtrip", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
def test_pickle(roundtrip):
    error = errors.OutOfRangeError("node", None, "end of sequence", {"a": 1})
    error.story.append("line")
    back = roundtrip(error)
    assert type(back) is errors.OutOfRangeError
    assert (back.node_def, back.message, back.error_code) == ("node", "end of sequence", errors.OUT_OF_RANGE)
    assert back.experimental_payloads == {"a": 1} and back.story == ["line"] and str(back) == str(error)


def test_pickle_replaces_the_op_by_its_text():
    error = errors.DataLossError(None, FakeOp, "lost")
    back = pickle.loads(pickle.dumps(error))
    assert back.op is None
    assert str(back) == str(error)


def test_pickle_of_the_base_class():
    back = pickle.loads(pickle.dumps(errors.OpError(None, None, "m", 42)))
    assert type(back) is errors.OpError and back.error_code == 42
