"""TF's error classes and status codes (`tf.errors`).

Every failure that TF reports with a status code is an `OpError` subclass here, with the same code. Two ways to
make one:

    InvalidArgumentError(node_def, op, "text")   # TF's own constructor
    InvalidArgumentError("text")                 # what kernels write; the runtime adds the node with `attach`

`story` is a list of lines that explain how the error came about (the node, its device, its inputs, the user's
source line). It is empty by default, anyone on the way out may append to it, and `str(error)` ends with it.
`message` stays TF's bare text, so that programs that match on it keep working.
"""

from __future__ import annotations

import traceback
from typing import Any

OK = 0
CANCELLED = 1
UNKNOWN = 2
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
ALREADY_EXISTS = 6
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
ABORTED = 10
OUT_OF_RANGE = 11
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14
DATA_LOSS = 15
UNAUTHENTICATED = 16


class OpError(Exception):
    """The base of all errors that carry a TF status code.

    `message`, `op` (the failed `tf.Operation` or None), `node_def` (its NodeDef or None), `error_code` and
    `experimental_payloads` are TF's. `story` is a list of explaining lines, shown after the message.
    """

    def __init__(self, node_def: Any, op: Any, message: str, error_code: int, *args: Any):
        super().__init__()
        self._node_def = node_def
        self._op = op
        self._message = message
        self._error_code = error_code
        self._experimental_payloads = args[0] if args else {}
        self.story: list[str] = []

    @property
    def message(self) -> str:
        """The error text, without the story."""
        return self._message

    @property
    def op(self) -> Any:
        """The operation that failed, if it is known and part of the client's graph, else None."""
        return self._op

    @property
    def node_def(self) -> Any:
        """The NodeDef of the operation that failed, or None."""
        return self._node_def

    @property
    def error_code(self) -> int:
        """The status code, e.g. `tf.errors.INVALID_ARGUMENT`."""
        return self._error_code

    @property
    def experimental_payloads(self) -> Any:
        """Extra key-value data that came with the status."""
        return self._experimental_payloads

    def attach(self, op: Any = None, node_def: Any = None, message: str | None = None) -> OpError:
        """Names the operation at fault, once: what the error already knows is kept. Returns the error itself.

        `message` replaces the text (the runtime adds `{{node name}}` to it).
        """
        if self._op is None:
            self._op = op
        if self._node_def is None:
            self._node_def = node_def
        if message is not None:
            self._message = message
        return self

    def __str__(self) -> str:
        parts = [self._message if isinstance(self._message, str) else str(self._message)]
        if self._op is not None:
            parts.append(_where_created(self._op))
        if self.story:
            parts.append("\n".join(self.story))
        return "\n\n".join(parts)

    def __reduce__(self):
        # The operation belongs to a live graph and stays behind; where it was created travels as text.
        story = list(self.story)
        if self._op is not None:
            story.insert(0, _where_created(self._op))
        return _rebuild, (
            type(self),
            self._node_def,
            self._message,
            self._error_code,
            self._experimental_payloads,
            story,
        )


def _where_created(op: Any) -> str:
    """TF's paragraph about where the operation, and those it was made from, were created."""
    text = f"Original stack trace for {op.name!r}:\n" + _format_stack(op)
    origin = getattr(op, "_original_op", None)
    while origin is not None:
        text += f"\n...which was originally created as op {origin.name!r}, defined at:\n" + _format_stack(origin)
        origin = getattr(origin, "_original_op", None)
    return text


def _format_stack(op: Any) -> str:
    return "".join(traceback.format_list(getattr(op, "traceback", None) or []))


def _rebuild(cls: type[OpError], node_def: Any, message: str, code: int, payloads: Any, story: list[str]) -> OpError:
    error = cls.__new__(cls, node_def, None, message)  # sets `args` as a constructor call would
    OpError.__init__(error, node_def, None, message, code, payloads)
    error.story = story
    return error


class _CodedError(OpError):
    """An `OpError` whose class decides its code. Takes `(node_def, op, message, *payloads)` or just `(message)`."""

    code = UNKNOWN

    def __init__(self, node_def: Any = None, op: Any = None, message: Any = None, *args: Any):
        if message is None and op is None and isinstance(node_def, str):
            node_def, message = None, node_def
        if message is None:
            raise TypeError(
                f"{type(self).__name__} needs a message: use {type(self).__name__}(message) or "
                f"{type(self).__name__}(node_def, op, message)"
            )
        super().__init__(node_def, op, message, self.code, *args)


class CancelledError(_CodedError):
    """The operation or step was cancelled, for instance by closing its session or queue."""

    code = CANCELLED


class UnknownError(_CodedError):
    """An error without a more precise class, or from a process that gave too little information."""

    code = UNKNOWN


class InvalidArgumentError(_CodedError):
    """An operation got an input that it cannot accept, for instance tensors of incompatible shapes."""

    code = INVALID_ARGUMENT


class DeadlineExceededError(_CodedError):
    """A time limit passed before the operation completed."""

    code = DEADLINE_EXCEEDED


class NotFoundError(_CodedError):
    """Something asked for (a file, a checkpoint key, a resource) does not exist."""

    code = NOT_FOUND


class AlreadyExistsError(_CodedError):
    """Something to be created is there already."""

    code = ALREADY_EXISTS


class PermissionDeniedError(_CodedError):
    """The caller lacks the right to do this, for instance to read a file."""

    code = PERMISSION_DENIED


class UnauthenticatedError(_CodedError):
    """The request carries no valid credentials."""

    code = UNAUTHENTICATED


class ResourceExhaustedError(_CodedError):
    """Something ran out: memory, disk space, a quota."""

    code = RESOURCE_EXHAUSTED


class FailedPreconditionError(_CodedError):
    """The system is not in the state that the operation needs, for instance a variable is not yet initialised."""

    code = FAILED_PRECONDITION


class AbortedError(_CodedError):
    """The operation was given up, usually because of a concurrent action; a retry at a higher level may succeed."""

    code = ABORTED


class OutOfRangeError(_CodedError):
    """An operation went past the end of its valid range, for instance of a queue, iterator or file."""

    code = OUT_OF_RANGE


class UnimplementedError(_CodedError):
    """The operation exists but not for these types, shapes or device."""

    code = UNIMPLEMENTED


class InternalError(_CodedError):
    """An invariant of the runtime broke: a bug."""

    code = INTERNAL


class UnavailableError(_CodedError):
    """A service (such as another task of the cluster) cannot be reached right now; a retry may succeed."""

    code = UNAVAILABLE


class DataLossError(_CodedError):
    """Data is lost or corrupt, for instance a truncated record file."""

    code = DATA_LOSS


_CODE_TO_CLASS: dict[int, type[_CodedError]] = {cls.code: cls for cls in _CodedError.__subclasses__()}


def exception_type_from_error_code(error_code: int) -> type[OpError]:
    """The class for a status code. KeyError for OK and for codes that do not exist."""
    return _CODE_TO_CLASS[error_code]


def error_code_from_exception_type(cls: type) -> int:
    """The status code of an error class, UNKNOWN for any other class."""
    code = getattr(cls, "code", None)
    return code if isinstance(code, int) and _CODE_TO_CLASS.get(code) is cls else UNKNOWN


def make_error(error_code: int, message: str, node_def: Any = None, op: Any = None) -> OpError:
    """An error of the right class for a status code that came from somewhere else, such as the wire."""
    cls = _CODE_TO_CLASS.get(error_code)
    if cls is None:
        return UnknownError(node_def, op, message, {"error_code": error_code})
    return cls(node_def, op, message)
