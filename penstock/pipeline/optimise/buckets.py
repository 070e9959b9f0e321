"""Hashed numbers: the text of integers that is only made to be hashed is not made.

    string_to_hash_bucket_fast(as_string(x))        -> _TensorToHashBucketFast(x)

TensorFlow does the same. The kernel hashes all numbers at once. Text that others read too stays as it is for them.
"""

from __future__ import annotations

from typing import Any

from penstock.graph.ir import Graph, Operation
from penstock.pipeline.optimise.edit import Edit


def hash_numbers(graph: Graph, context: Any) -> Graph:
    """the hash of an integer's text -> one node"""
    edit = Edit(graph)
    for op in graph:
        if op.type != "StringToHashBucketFast" or "device:CPU" not in op.device:
            continue
        text = op.inputs[0].op
        if text.type == "AsString" and text.device == op.device and not text.control_inputs and _is_plain(text):
            attrs = {"T": text.attrs["T"], "num_buckets": op.attrs["num_buckets"]}
            edit.retyped[op] = ("_TensorToHashBucketFast", [text.inputs[0]], attrs)
            edit.why.append(f"{op.name} = {text.name}, hashed")
    if not edit:
        return graph
    context.note(edit)
    return edit.apply(context.roots(graph))


def _is_plain(text: Operation) -> bool:
    """Whether integers are written with their digits and nothing else."""
    attrs = text.attrs
    plain = attrs["precision"] < 0 and attrs["width"] < 0 and not (attrs["scientific"] or attrs["shortest"] or attrs["fill"])
    return plain and attrs["T"].is_integer and not attrs["T"].is_quantized
