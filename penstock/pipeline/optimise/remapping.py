"""Remapping: a convolution or product and what follows it become one of TensorFlow's fused nodes.

    conv(pad(x, zeros), w)                          -> the same convolution with explicit paddings
    relu(conv(x, w) + bias)                         -> _FusedConv2D(x, w, bias)
    relu(batch_norm(conv(x, w), constants) + short) -> _FusedConv2D(x, w, scale, offset, mean, variance, short)
    gradients of filter and bias out of one dy      -> _MklNativeConv2DBackpropFilterWithBias(x, sizes, dy)

A value may vanish into a fused node only if nothing else needs it: one reader, no control edge behind it, not asked for by name. What the
steps compute stays as it was, but for ReLU of NaN (`_loses_nan`); the engine that runs the node decides what to do at once, and folds constants of a batch normalisation
into the weights when it lays them out, so that the graph holds them once. Acts on nodes of CPUs while the oneDNN engine is on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock import dtypes
from penstock.graph.bind import engine_is_on
from penstock.graph.ir import Graph, Operation, Tensor
from penstock.pipeline.optimise.edit import Edit

_HEADS = {"Conv2D": "_FusedConv2D", "DepthwiseConv2dNative": "_FusedDepthwiseConv2dNative", "MatMul": "_FusedMatMul"}
_NORMS = frozenset(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"))
_ADDS = frozenset(("Add", "AddV2"))
_FILTER, _WITH_BIAS = "Conv2DBackpropFilter", "_MklNativeConv2DBackpropFilterWithBias"
_FAR = 500
"""How many nodes behind a gradient are looked at before it is left as it is."""
_ACTIVATIONS = frozenset(("Relu", "Relu6", "Elu", "LeakyRelu", "Tanh", "Sigmoid"))
_TYPES = (dtypes.float32, dtypes.bfloat16)
_KEPT = {
    "Conv2D": ("T", "strides", "padding", "explicit_paddings", "data_format", "dilations", "use_cudnn_on_gpu"),
    "DepthwiseConv2dNative": ("T", "strides", "padding", "data_format", "dilations"),
    "MatMul": ("T", "transpose_a", "transpose_b"),
}


class _Chain:
    """A head and the nodes behind it that can go with it."""

    def __init__(self, head: Operation, kept: frozenset[str], taken: set[Operation]) -> None:
        self.head, self.kept, self.taken = head, kept, taken
        self.parts = [head]
        self.steps: list[str] = []
        self.args: list[Tensor] = []
        self.epsilon, self.alpha = 1e-4, 0.2
        while self._grow():
            pass

    @property
    def last(self) -> Operation:
        return self.parts[-1]

    def _grow(self) -> bool:
        """Takes in the next node, if there is one that fits."""
        steps = self.steps
        if (steps and steps[-1] in _ACTIVATIONS) or self.last.name in self.kept:
            return False
        reader = only_reader(self.last)
        if reader is None or reader in self.taken or reader.control_inputs or reader.device != self.head.device or reader.attrs.get("T") is not self.head.attrs["T"]:
            return False
        value = self.last.outputs[0]
        kind = reader.type
        if kind == "BiasAdd":
            ok = not steps and reader.inputs[0] is value and self._format(reader) and reader.inputs[1] is not value
            return ok and self._take(reader, "BiasAdd", [reader.inputs[1]])
        if kind in _ADDS:
            other = reader.inputs[1] if reader.inputs[0] is value else reader.inputs[0]
            if other is value:
                return False
            if not steps and self._is_bias(value, other):
                return self._take(reader, "BiasAdd", [other])
            if self.head.type == "Conv2D" and "Add" not in steps and _same_dims(value, other):
                return self._take(reader, "Add", [other])
            return False
        if kind in _NORMS:
            fits = self.head.type != "MatMul" and steps in ([], ["BiasAdd"]) and reader.inputs[0] is value and self._format(reader)
            fits = fits and (self.head.type == "Conv2D" or self.head.attrs["T"] is dtypes.float32)
            if not fits or reader.attrs["is_training"]:
                return False
            self.epsilon = reader.attrs["epsilon"]
            return self._take(reader, "FusedBatchNorm", reader.inputs[1:5])
        if kind in _ACTIVATIONS and not self._loses_nan(reader):
            self.alpha = reader.attrs.get("alpha", self.alpha)
            return self._take(reader, kind, [])
        return False

    def _loses_nan(self, activation: Operation) -> bool:
        """Whether NaN would come out as 0 where it comes out of TensorFlow as NaN. As part of a fused node, ReLU gives 0 in both; but TensorFlow
        joins it only with what has a bias or a batch normalisation in between, and seldom with what has a sum. A ReLU behind a sum is joined here all
        the same: the engine computes it in a pass of its own, which keeps NaN (`Steps.is_apart`)."""
        if activation.type == "LeakyRelu":
            return activation.attrs["alpha"] == 0
        if activation.type == "Relu6" and "Add" in self.steps:
            return True
        return activation.type in ("Relu", "Relu6") and not {"BiasAdd", "FusedBatchNorm"} & {*self.steps}

    def _take(self, reader: Operation, step: str, args: list[Tensor]) -> bool:
        self.parts.append(reader)
        self.steps.append(step)
        self.args += args
        return True

    def _format(self, reader: Operation) -> bool:
        """Whether the reader has its channels where the head has them."""
        return reader.attrs["data_format"] == self.head.attrs.get("data_format", b"NHWC")

    def _is_bias(self, value: Tensor, other: Tensor) -> bool:
        """Whether `value + other` adds one number to each channel."""
        if self.head.attrs.get("data_format", b"NHWC") != b"NHWC" or value.dims is None or other.dims is None:
            return False
        return len(other.dims) == 1 and other.dims[0] is not None and other.dims[0] == value.dims[-1]

    def attrs(self) -> dict[str, Any]:
        head = self.head
        attrs = {name: head.attrs[name] for name in _KEPT[head.type] if name in head.attrs}
        attrs.update(
            num_args=len(self.args), fused_ops=[s.encode() for s in self.steps], epsilon=self.epsilon, leakyrelu_alpha=self.alpha
        )  # fmt: skip
        if head.type == "Conv2D":
            attrs.update(TArgs=[t.dtype.base_dtype for t in self.args], num_host_args=0, filter_format=b"HWIO")
        return attrs

    def __str__(self) -> str:
        return f"{self.last.name} = {' + '.join(op.name for op in self.parts)}"


def remap(graph: Graph, context: Any) -> Graph:
    """conv -> bias or batch norm -> sum -> activation: one node"""
    if not engine_is_on("onednn") or not any(op.type in _HEADS or op.type == _FILTER for op in graph):
        return graph
    edit = Edit(graph)
    joined = _join_bias_gradients(graph, edit, context)
    taken: set[Operation] = set()
    fused: list[_Chain] = []
    padded = 0
    for op in graph:
        if op.type not in _HEADS or op.attrs["T"] not in _TYPES or "device:CPU" not in op.device:
            continue
        inputs, attrs = list(op.inputs), op.attrs
        with_padding = _absorb_padding(op, context.targets)
        chain = _Chain(op, context.targets, taken) if _is_mapped(op) else None
        if chain is not None and chain.steps:
            taken.update(chain.parts)
            fused.append(chain)
            _activate_before_reshape(chain, edit, context.targets)
            attrs = chain.attrs()
            if op.control_inputs:
                edit.controls[chain.last] = list(op.control_inputs)
        elif with_padding is None:
            continue
        else:
            chain = None
        if with_padding is not None:
            padded += 1
            inputs[0] = with_padding[0]
            attrs = {**attrs, "padding": b"EXPLICIT", "explicit_paddings": with_padding[1]}
        if chain is None:
            edit.retyped[op] = (op.type, inputs, attrs)
        else:
            edit.retyped[chain.last] = (_HEADS[op.type], [*inputs, *chain.args], attrs)
    if not edit:
        return graph
    if fused:
        edit.why.append(f"fused {len(fused)} chains: {', '.join(map(str, fused[:4]))}{', ...' if len(fused) > 4 else ''}")
    if joined:
        edit.why.append(f"{joined} gradients of biases come with those of filters")
    if padded:
        edit.why.append(f"{padded} convolutions pad by themselves")
    context.note(edit)
    return edit.apply(context.roots(graph))


def _activate_before_reshape(chain: _Chain, edit: Edit, targets: frozenset[str]) -> None:
    """relu(reshape(matmul + bias)) -> reshape(relu(matmul + bias)): a dense layer on more than two dimensions"""
    reshape = only_reader(chain.last) if chain.head.type == "MatMul" and chain.steps == ["BiasAdd"] else None
    if reshape is None or reshape.type != "Reshape" or reshape.inputs[0] is not chain.last.outputs[0] or reshape.name in targets:
        return
    activation = only_reader(reshape)
    if activation is None or activation.type not in _ACTIVATIONS or activation.name in targets or chain.last.name in targets:
        return
    if chain._loses_nan(activation):
        return
    if reshape.control_inputs or activation.control_inputs or activation._control_outputs or reshape.device != activation.device:
        return
    chain.alpha = activation.attrs.get("alpha", chain.alpha)
    chain.steps.append(activation.type)
    edit.redirect[activation.outputs[0]] = reshape.outputs[0]


def _join_bias_gradients(graph: Graph, edit: Edit, context: Any) -> int:
    """The sums of dy, which are a bias's gradient, are found on the way to the gradient of the filter before it."""
    count = 0
    sums_of = {(_root(op.inputs[0]), op.attrs["data_format"]): op for op in graph if op.type == "BiasAddGrad"}
    if not sums_of:
        return 0
    moved: dict[Operation, Operation] = {}  # a joined BiasAddGrad -> what those who only waited for it wait for
    for op in graph:
        if op.type != _FILTER or op.attrs["T"] not in _TYPES or "device:CPU" not in op.device or op.attrs["padding"] == b"EXPLICIT":
            continue
        dy = _root(op.inputs[2])
        bias = sums_of.get((dy, op.attrs["data_format"]))
        if bias is None or bias in moved:
            continue
        if bias.device != op.device or bias.control_inputs or bias.name in context.targets or comes_before(bias, op):
            continue
        sums = Tensor(op, 1, bias.outputs[0].dtype, bias.outputs[0].dims)
        edit.redirect[bias.outputs[0]] = sums
        edit.more_outputs[op] = [sums]
        attrs = {k: v for k, v in op.attrs.items() if k != "explicit_paddings"}
        edit.retyped[op] = (_WITH_BIAS, list(op.inputs), attrs)
        moved[bias] = dy.op
        count += 1
    for bias, source in moved.items():
        # A sum has no effects: who waits for it may as well wait for what it sums up, which is certain to come before both.
        for waiting in bias._control_outputs or ():
            controls = edit.controls.get(waiting, waiting.control_inputs)
            edit.controls[waiting] = list(dict.fromkeys(source if c is bias else c for c in controls))
    return count


def _root(tensor: Tensor) -> Tensor:
    """The tensor behind Identities, by which gradients are made to wait for each other."""
    while tensor.op.type == "Identity" and not tensor.op.inputs[0].dtype._is_ref_dtype:
        tensor = tensor.op.inputs[0]
    return tensor


def comes_before(early: Operation, late: Operation) -> bool:
    """Whether `late` needs a value that `early` gives, through other nodes; also if that takes too long to tell."""
    stack = list(early.outputs[0]._consumers or ())
    seen = set(stack)
    while stack:
        op = stack.pop()
        if op is late or len(seen) > _FAR:
            return True
        for reader in [r for t in op.outputs for r in t._consumers or ()] + list(op._control_outputs or ()):
            if reader not in seen:
                seen.add(reader)
                stack.append(reader)
    return False


def _is_mapped(op: Operation) -> bool:
    """Whether the fused type can say what the head says."""
    if op.type == "DepthwiseConv2dNative":
        return op.attrs["padding"] in (b"SAME", b"VALID")
    return op.attrs.get("data_format", b"NHWC") in (b"NHWC", b"NCHW")


def only_reader(op: Operation) -> Operation | None:
    """The one node that reads the one value that `op` gives to anybody, if nothing waits for `op` otherwise."""
    if op._control_outputs or any(t._consumers for t in op.outputs[1:]):
        return None
    readers = op.outputs[0]._consumers or ()
    return readers[0] if len(readers) == 1 else None


def _same_dims(a: Tensor, b: Tensor) -> bool:
    """Whether two values have one shape, as far as is known; at least the rank and the channels must be."""
    if a.dims is None or b.dims is None or len(a.dims) != len(b.dims):
        return False
    return all(x == y for x, y in zip(a.dims, b.dims, strict=True))


def _absorb_padding(op: Operation, kept: frozenset[str]) -> tuple[Tensor, list[int]] | None:
    """The image before a constant padding with zeros, and the paddings, for a convolution that can pad by itself."""
    if op.type != "Conv2D" or op.attrs["padding"] != b"VALID" or op.attrs["data_format"] != b"NHWC":
        return None
    pad = op.inputs[0].op
    if pad.type != "Pad" or pad.control_inputs or pad.name in kept or pad.device != op.device or only_reader(pad) is not op:
        return None
    source = pad.inputs[1].op
    if source.type != "Const":
        return None
    pads = np.asarray(source.attrs["value"].array)
    if pads.shape != (4, 2) or pads.min() < 0 or pads[0].any() or pads[3].any():
        return None
    return pad.inputs[0], [int(n) for n in pads.ravel()]
