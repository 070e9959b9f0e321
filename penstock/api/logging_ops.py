"""`tf.Assert`, `tf.Print` and `tf.print`."""

from __future__ import annotations

import sys
from typing import Any

from penstock import dtypes
from penstock.api.export import export, resolve
from penstock.graph import nest
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Operation, Tensor
from penstock.graph.raw import raw


@export("Assert", "debugging.Assert")
def Assert(condition: Any, data: list[Any], summarize: int | None = None, name: str | None = None) -> Operation:
    """An op that fails with InvalidArgumentError, showing `data`, if `condition` is false. Make later ops depend on it:

    >>> with tf.control_dependencies([tf.Assert(x > 0, [x])]):      # doctest: +SKIP
    ...     y = tf.sqrt(x)
    """
    graph = get_default_graph()
    with graph.name_scope("Assert" if name is None else name):
        values = [convert_to_tensor(d) for d in data]
        if all(v.dtype.base_dtype in (dtypes.string, dtypes.int32) for v in values):
            # Such tensors are in host memory anyway, so that looking at them costs no copy and needs no guard.
            return raw.Assert(condition, data, summarize=summarize, name="Assert")
        condition = convert_to_tensor(condition, name="Condition")

        def fail() -> Operation:
            return raw.Assert(condition, data, summarize=summarize, name="Assert")

        return resolve("cond")(condition, resolve("no_op"), fail, name="AssertGuard").op


@export("Print")
def Print(
    input_: Any,
    data: list[Any],
    message: str | None = None,
    first_n: int | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Tensor:
    """`input_`; running it prints `message` and `data` to stderr, the first `first_n` times only if that is given."""
    return raw.Print(input_, data, message=message, first_n=first_n, summarize=summarize, name=name)


_STREAMS = ("log(info)", "log(warning)", "log(error)")


def _stream_name(stream: Any) -> str:
    if stream is None or stream is sys.stderr or stream in ("stderr", "sys.stderr"):
        return "stderr"
    if stream is sys.stdout or stream in ("stdout", "sys.stdout"):
        return "stdout"
    if isinstance(stream, str) and stream.startswith("file://"):
        return stream
    name = getattr(stream, "__name__", "")
    for log in ("info", "warning", "error"):
        if callable(stream) and name in (log, "warn" if log == "warning" else log):
            return f"log({log})"
    raise ValueError(
        f"Unsupported output stream, logging level, or file.{stream}. Supported streams are sys.stdout, sys.stderr, tf.logging.info, "
        "tf.logging.warning, tf.logging.error. File needs to be in the form of 'file://<filepath>'."
    )


class _Hole:
    """Stands for a tensor while a structure is turned into text."""

    def __repr__(self) -> str:
        return "{}"


@export("print")
def print(*inputs: Any, **kwargs: Any) -> Operation:
    """An op that prints its arguments: tensors (of long ones the first and last `summarize` elements), structures, anything.

    Keyword arguments: output_stream (sys.stderr), summarize (3; -1 for everything), sep (" "), end (newline), name.
    """
    output_stream = kwargs.pop("output_stream", sys.stderr)
    name = kwargs.pop("name", None)
    summarize = kwargs.pop("summarize", 3)
    sep = kwargs.pop("sep", " ")
    end = kwargs.pop("end", "\n")
    if kwargs:
        raise ValueError(f"Unrecognized keyword arguments for tf.print: {kwargs}")
    stream = _stream_name(output_stream)
    end = "" if end is None else end
    # A single string tensor is printed as it is, without quotes.
    if (
        len(inputs) == 1
        and isinstance(inputs[0], Tensor)
        and inputs[0].dtype == dtypes.string
        and inputs[0].dims in ((), None)
    ):
        text = inputs[0]
    else:
        tensors: list[Tensor] = []
        template = sep.join(_template(value, tensors) for value in inputs)
        text = raw.StringFormat(
            tensors, template=template, placeholder="{}", summarize=summarize, name=name and name + "_format"
        )
    return raw.PrintV2(text, output_stream=stream, end=end, name=name)


def _template(value: Any, tensors: list[Tensor]) -> str:
    """`value` as text with {} where its tensors go, which are added to `tensors` in that order."""
    if isinstance(value, str):
        return value
    element = getattr(value, "_as_graph_element", None)
    if isinstance(value, Tensor) or element is not None:
        tensors.append(convert_to_tensor(value))
        return "{}"
    if isinstance(value, (list, tuple, dict)):
        flat = nest.flatten(value)
        holes = []
        for item in flat:
            if isinstance(item, Tensor) or hasattr(item, "_as_graph_element"):
                tensors.append(convert_to_tensor(item))
                holes.append(_Hole())
            else:
                holes.append(item)
        import pprint  # a slow import for one rarely used name

        return pprint.pformat(nest.pack_sequence_as(value, holes))
    return str(value)


@export("timestamp")
def timestamp(name: str | None = None) -> Tensor:
    """The time in seconds since 1970, as a float64 scalar, each time it runs."""
    return raw.Timestamp(name=name)
