"""GraphDef -> Graph: `import_graph_def` with TF's checks, every problem of a graph reported at once.

Nodes are read in topological order; only the back edge of a loop (a Merge fed by a NextIteration) may point forward.
Nothing is added to the target graph until the whole GraphDef is known to be sound.
"""

from __future__ import annotations

import contextlib
import heapq
import re
from collections.abc import Iterator
from typing import Any

from penstock import errors
from penstock.dtypes import DType
from penstock.formats import protos
from penstock.formats.attr_value import FuncAttr, TensorAttr, decode
from penstock.graph.build import arg_dtypes, check_attrs, output_dtypes
from penstock.graph.convert import convert_to_tensor
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Graph, Operation, Tensor, capture_trace
from penstock.graph.opdef import MISSING, OPS, OpDef
from penstock.graph.quiet_gc import paused
from penstock.graph.shape_inference import infer_shapes
from penstock.graph.signatures import check_signature
from penstock.names import canonical, parse_tensor_name
from penstock.shapes import TensorShape, compatible_dims, merge_dims

_VALID_NODE = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*\Z")
_VALID_INTERNAL = re.compile(r"[A-Za-z0-9._][A-Za-z0-9_.\\/>-]*\Z")


def import_graph_def(
    graph_def: Any,
    input_map: dict | None = None,
    return_elements: list[str] | None = None,
    name: str | None = None,
    op_dict: Any = None,
    producer_op_list: Any = None,
    validate_colocation_constraints: bool = True,
) -> list | None:
    """Adds the nodes of `graph_def` to the default graph, below the name scope `name` (default "import"; "" is the root).

    `input_map` replaces inputs (names in the GraphDef -> tensors here); `return_elements` names operations and tensors of
    the GraphDef to return; `producer_op_list` lets unknown attributes with default values be dropped, as TF does.
    """
    graph_def = _as_graph_def(graph_def)
    graph = get_default_graph()
    graph._check_not_finalized()
    _check_versions(graph, graph_def.versions)
    mapping = _input_map(graph, input_map or {})
    if return_elements is not None:
        return_elements = list(return_elements)
        if not all(isinstance(e, str) for e in return_elements):
            raise TypeError("Argument `return_elements` must be a list of strings.")
    if producer_op_list is not None:
        graph_def = _drop_default_attrs(graph_def, producer_op_list)
    with paused(), _library_added(graph, graph_def.library):
        prefix = _enter_prefix(graph, name)
        added = GraphReader(graph, graph_def.node, prefix, mapping, validate_colocation=validate_colocation_constraints).read()
    unused = [key for key in mapping.keys if key not in mapping.used and parse_tensor_name(key.lstrip("^"))[0] not in added]
    if unused:
        raise ValueError(f"Attempted to map inputs that were not found in graph_def: [{', '.join(unused)}]")
    if graph_def.versions.producer:
        graph._producer = min(graph._producer, max(graph_def.versions.producer, 1))
    if return_elements is None:
        return None
    return [_returned(added, element) for element in return_elements]


def _as_graph_def(value: Any) -> Any:
    if isinstance(value, protos.GraphDef):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError("Argument `graph_def` must be a GraphDef proto; parse bytes with tf.GraphDef.FromString.")
    try:
        return protos.coerce(value, protos.GraphDef, "graph_def")
    except TypeError as error:
        raise TypeError("Argument `graph_def` must be a GraphDef proto.") from error


def _check_versions(graph: Graph, versions: Any) -> None:
    """A GraphDef says which runtimes may read it; this one speaks the version that new graphs carry."""
    ours = Graph.PRODUCER_VERSION
    if versions.producer < 0:
        raise ValueError(f"GraphDef producer version {versions.producer} below min producer 0 supported by Penstock.  Please regenerate your graph.")
    if versions.min_consumer > ours:
        raise ValueError(f"GraphDef min consumer version {versions.min_consumer} above current version {ours} for Penstock.  Please upgrade Penstock.")
    if ours in versions.bad_consumers:
        raise ValueError(f"GraphDef disallows consumer version {ours}.  Please upgrade Penstock: this version is likely buggy.")


def _returned(added: dict[str, Operation], element: str) -> Any:
    if ":" in element:
        op_name, index = parse_tensor_name(element)
        op = added.get(op_name)
        if op is not None and index < len(op.outputs):
            return op.outputs[index]
    elif element in added:
        return added[element]
    raise ValueError(f"Requested return_element '{element}' not found in graph_def.")


class _InputMap:
    """`input_map`, by canonical name, and which entries were used."""

    def __init__(self) -> None:
        self.tensors: dict[tuple[str, int], Tensor] = {}
        self.controls: dict[str, Operation] = {}
        self.keys: list[str] = []
        self.used: set[str] = set()
        self.key_of: dict[Any, str] = {}


def _input_map(graph: Graph, given: dict) -> _InputMap:
    mapping = _InputMap()
    if not given:
        return mapping
    if not isinstance(given, dict) or not all(isinstance(k, str) for k in given):
        raise TypeError(f"Argument `input_map` must be a dictionary mapping strings to Tensor objects. Received {given!r}.")
    for key, value in given.items():
        mapping.keys.append(key)
        if key.startswith("^"):
            mapping.controls[key[1:]] = value if isinstance(value, Operation) else value.op
            mapping.key_of[key] = key
            continue
        where = parse_tensor_name(key)
        mapping.tensors[where] = convert_to_tensor(value, name="input_map")
        mapping.key_of[where] = key
    return mapping


def _enter_prefix(graph: Graph, name: str | None) -> str:
    if name is None:
        name = "import"
    if not name:
        return ""  # the root, whatever scope is open: TF's name_scope("")
    with graph.name_scope(name) as scope:
        return scope


@contextlib.contextmanager
def _library_added(graph: Graph, library: Any) -> Iterator[None]:
    """Adds a GraphDef's functions to `graph`; takes them out again if what follows fails."""
    functions, gradients = list(graph.functions), dict(graph.gradient_functions)
    try:
        for function in library.function:
            _add_library_function(graph, function)
        for gradient in library.gradient:
            missing = next((n for n in (gradient.function_name, gradient.gradient_func) if n not in graph.functions), None)
            if missing is not None:
                raise ValueError(f"FunctionDefLibrary missing '{missing}' FunctionDef: it is named in the library's gradients")
            graph.gradient_functions[gradient.function_name] = gradient.gradient_func
        yield
    except BaseException:
        for name in set(graph.functions).difference(functions):
            del graph.functions[name]
        graph.gradient_functions.clear()
        graph.gradient_functions.update(gradients)  # sessions hold on to the dict itself
        raise


def _add_library_function(graph: Graph, function_def: Any) -> None:
    from penstock.graph.function import Function

    name = function_def.signature.name
    if name in OPS:
        raise ValueError(f"Cannot add function '{name}' because an op with the same name already exists.")
    try:
        function = Function.from_proto(function_def, graph)
        check_signature(function.op_def, checked_kind)
    except (TypeError, errors.OpError, RecursionError) as error:
        raise ValueError(f"Function '{name}' cannot be read: {getattr(error, 'message', error)}") from error
    known = graph.functions.get(function.name)
    if known is not None and not known.same_as(function):
        raise ValueError(f"Cannot add function '{function.name}' because a different function with the same name already exists.")
    if known is None:
        graph.functions[function.name] = function
        graph._edits += 1


def _drop_default_attrs(graph_def: Any, producer_op_list: Any) -> Any:
    """Attributes that this registry does not know are dropped where they have the producer's default value."""
    producer = {op.name: {a.name: a for a in op.attr} for op in protos.coerce(producer_op_list, protos.OpList, "producer_op_list").op}
    result = protos.GraphDef()
    result.CopyFrom(graph_def)
    for node in result.node:
        opdef, theirs = OPS.get(node.op), producer.get(node.op)
        if opdef is None or theirs is None:
            continue
        for key in list(node.attr):
            if key in opdef.attrs or key.startswith("_") or key not in theirs:
                continue
            if theirs[key].HasField("default_value") and theirs[key].default_value == node.attr[key]:
                del node.attr[key]
    return result


_MADE_BY_THE_RUNTIME = frozenset((
    "_Region", "_SumOfProducts", "_SumOfProductsAndRows", "_MatMulColumns", "_LayerNorm", "_LayerNormGrad", "_LSTMSteps", "_LSTMTraining", "_LSTMTrainingGrad", "_ScaledBatchMatMul", "_SoftmaxGrad", "_AssignMul", "_AssignMulVariableOp", "_AssignSubRatio", "_AssignSubRatioVariableOp", "_SumOfDuplicates",
    *(f"_SumAnd{kind}SparseApply{name}" for kind in ("", "Resource") for name in ("Adagrad", "Ftrl", "Momentum")),
))


class GraphReader:
    """Reads NodeDefs into `graph`. Used for whole graphs and for function bodies alike.

    State
        names      prefix + original name -> the new Operation, by original name
        waiting    (merge, input index, source name, source index) of back edges, wired at the end
    """

    def __init__(
        self, graph: Graph, nodes: Any, prefix: str = "", mapping: _InputMap | None = None, internal: bool = False, validate_colocation: bool = True
    ) -> None:
        self.graph = graph
        self.nodes = nodes
        self.prefix = prefix
        self.mapping = mapping or _InputMap()
        self.internal = internal
        self.validate_colocation = validate_colocation
        self.given = {prefix + node.name for node in nodes}
        # Scopes of nodes that were here before: a node of that name would look like their parent.
        self.scopes = set() if prefix or internal else {name[:i] for name in graph._nodes for i, c in enumerate(name) if c == "/"}
        self.names: dict[str, Operation] = {}
        self.waiting: list[tuple[Operation, int, str, int]] = []
        self.trace = capture_trace()

    def read(self) -> dict[str, Operation]:
        by_name, order = self._checked_order()
        added: list[Operation] = []
        taken = self.graph._names_in_use
        old_names = {key: taken[key] for key in ((self.prefix + name).lower() for name in by_name) if key in taken}
        try:
            for node, parsed, attrs, opdef in order:
                self._add(node, parsed, attrs, opdef, added)
            self._wire_back_edges()
            if not self.internal:
                self._enter_scopes(added)
            for op in added:
                if op.attrs.get("_class"):
                    self._rename_colocation(op, by_name)
        except BaseException:
            for op in reversed(added):  # an import that fails leaves nothing behind
                self.graph.remove_node(op)
                taken.pop(op.name.lower(), None)
            taken.update(old_names)
            raise
        return self.names

    # -- checks, before anything is added ---------------------------------------------------------------------------

    def _checked_order(self) -> tuple[dict[str, Any], list]:
        by_name: dict[str, Any] = {}
        devices: set[str] = set()
        valid = _VALID_INTERNAL if self.internal else _VALID_NODE
        for node in self.nodes:
            if not valid.match(node.name):
                raise ValueError(f"Node '{node.name}': Node name contains invalid characters")
            if node.name in by_name:
                raise ValueError(f"Node '{node.name}' is not unique")
            by_name[node.name] = node
            if node.device and node.device not in devices:
                try:
                    devices.add(canonical(node.device) and node.device)
                except ValueError as error:
                    raise ValueError(f"Node '{node.name}': Malformed device specification '{node.device}': {error}") from error
        parsed: dict[str, tuple[list[tuple[str, int]], list[str]]] = {}
        described: dict[str, tuple[dict, OpDef]] = {}
        problems: list[str] = []
        unknown: dict[str, list[str]] = {}
        for node in self.nodes:
            if not node.op:
                raise ValueError(f"Node '{node.name}' does not specify an operation")
            parsed[node.name] = self._parse_inputs(node, by_name)
            if node.op in _MADE_BY_THE_RUNTIME or (self.internal and node.op in ("_Arg", "_Retval")):
                problems.append(f"Node '{node.name}': {node.op} is an op that only the runtime itself may add to a graph")
                continue
            try:
                opdef = self.graph.op_def(node.op)
            except errors.NotFoundError:
                unknown.setdefault(node.op, []).append(node.name)
                continue
            try:
                described[node.name] = (self._attrs(node, opdef), opdef)
            except (ValueError, TypeError, errors.OpError) as error:
                problems.append(getattr(error, "message", None) or str(error))
        if unknown:
            lines = "; ".join(f"'{op}' (node '{names[0]}'{f' and {len(names) - 1} more' if len(names) > 1 else ''})" for op, names in unknown.items())
            problems.insert(
                0,
                f"Op type not registered {lines} in binary running in this process. Declare the op with penstock.ops.declare.op(...), or "
                "remove the nodes from the GraphDef.",
            )
        if problems:
            if unknown and len(problems) == 1:
                raise errors.NotFoundError(problems[0])
            raise ValueError("\n".join(problems))
        return by_name, self._sort(parsed, described, by_name)

    def _parse_inputs(self, node: Any, by_name: dict[str, Any]) -> tuple[list[tuple[str, int]], list[str]]:
        data: list[tuple[str, int]] = []
        control: list[str] = []
        for text in node.input:
            if text.startswith("^"):
                source = text[1:]
                control.append(source)
                where: Any = "^" + source
            else:
                if control:
                    raise ValueError(f"Node '{node.name}': Control dependencies must come after regular dependencies, found input '{text}' behind '^{control[-1]}'")
                try:
                    source, index = _quick_parse(text)
                except ValueError as error:
                    raise ValueError(f"Node '{node.name}': input '{text}' is not a valid tensor name") from error
                data.append((source, index))
                where = (source, index)
            if source not in by_name and where not in self.mapping.key_of and not self._known(source):
                raise ValueError(f"Node '{node.name}': Unknown input node '{text}'")
        return data, control

    def _known(self, source: str) -> bool:
        return source in self.names

    def _attrs(self, node: Any, opdef: OpDef) -> dict[str, Any]:
        attrs: dict[str, Any] = {}
        for key, proto in node.attr.items():
            try:
                value = decode(proto)
            except (ValueError, TypeError, RecursionError, errors.OpError) as error:
                raise ValueError(f"Node '{node.name}': attr '{key}' cannot be read: {getattr(error, 'message', error)}") from error
            if key == "_class" and not (isinstance(value, list) and all(isinstance(v, bytes) for v in value)):
                raise ValueError(f"Node '{node.name}': attr '_class' must be a list of strings, got {str(value)[:60]!r}")
            declared = opdef.attrs.get(key)
            if declared is not None:
                value = checked_kind(f"Node '{node.name}'", declared, value)
            attrs[key] = value
        try:
            return check_attrs(opdef, attrs, node.name)
        except TypeError as error:
            raise ValueError(f"Node '{node.name}': {error}") from error

    def _sort(self, parsed: dict, described: dict, by_name: dict[str, Any]) -> list:
        """Topological order in which a Merge does not wait for a NextIteration; the order of the file where that is one."""
        if self._is_sorted(parsed, by_name):
            return [(node, parsed[name], *described[name]) for name, node in by_name.items()]
        pending: dict[str, int] = {}
        consumers: dict[str, list[str]] = {}
        position = {name: i for i, name in enumerate(by_name)}
        names = list(by_name)
        ready: list[int] = []
        for node in self.nodes:
            data, control = parsed[node.name]
            count = 0
            is_merge = node.op in ("Merge", "RefMerge")
            sources = [s for s, i in data if (s, i) not in self.mapping.key_of and s in by_name]
            if is_merge:
                sources = [s for s in sources if by_name[s].op not in ("NextIteration", "RefNextIteration")]
            for source in sources + [c for c in control if "^" + c not in self.mapping.key_of and c in by_name]:
                consumers.setdefault(source, []).append(node.name)
                count += 1
            pending[node.name] = count
            if count == 0:
                ready.append(position[node.name])
        order = []
        while ready:  # already a heap: positions were added in rising order
            current = names[heapq.heappop(ready)]
            attrs, opdef = described[current]
            order.append((by_name[current], parsed[current], attrs, opdef))
            for consumer in consumers.get(current, ()):
                pending[consumer] -= 1
                if pending[consumer] == 0:
                    heapq.heappush(ready, position[consumer])
        if len(order) != len(self.nodes):
            stuck = [name for name, count in pending.items() if count > 0]
            raise ValueError(f"Graph contains a cycle: {len(stuck)} nodes wait for each other, among them {', '.join(repr(s) for s in stuck[:5])}. Only a Merge may take its input from a NextIteration further down.")
        return order

    def _is_sorted(self, parsed: dict, by_name: dict[str, Any]) -> bool:
        """Whether every node of the file stands behind all that it needs, the usual case."""
        seen: set[str] = set()
        for name in by_name:
            data, control = parsed[name]
            for source, _ in data:
                if source not in seen and source in by_name:
                    return False
            for source in control:
                if source not in seen and source in by_name:
                    return False
            seen.add(name)
        return True

    # -- adding ------------------------------------------------------------------------------------------------------

    def _add(self, node: Any, parsed: tuple, attrs: dict[str, Any], opdef: OpDef, added: list[Operation]) -> None:
        graph = self.graph
        data, control = parsed
        found: list[Tensor | None] = [self._input(node, where) for where in data]
        full = self.prefix + node.name
        if not self.internal and (full in graph or full in self.scopes):
            full = self._free_name(full)
        self._check_inputs(node, opdef, found, arg_dtypes(opdef.inputs, attrs))
        controls = []
        for source in control:
            mapped = self.mapping.controls.get(source)
            if mapped is not None:
                self.mapping.used.add("^" + source)
            controls.append(mapped if mapped is not None else self.names[source])
        # A back edge is wired later; until then the Merge reads its first input twice.
        first = next((t for t in found if t is not None), None)
        if found and first is None:
            raise ValueError(f"Graph contains a cycle: node '{node.name}' is a Merge of back edges only, so that no value ever reaches it.")
        inputs: list[Tensor] = [t if t is not None else first for t in found]  # type: ignore[misc]
        op = graph.add_node(opdef, inputs, attrs, full, output_dtypes(opdef, attrs), controls, node.device)
        added.append(op)
        op.trace = self.trace
        graph.unique_name(full) if not graph._name_stack else graph._names_in_use.setdefault(full.lower(), 1)
        self.waiting.extend((op, i, *data[i]) for i, tensor in enumerate(found) if tensor is None)
        self._set_shapes(op, node)
        self.names[node.name] = op

    def _input(self, node: Any, where: tuple[str, int]) -> Tensor | None:
        mapped = self.mapping.tensors.get(where)
        if mapped is not None:
            self.mapping.used.add(self.mapping.key_of[where])
            return mapped
        source = self.names.get(where[0])
        if source is None:
            return None
        if where[1] >= len(source.outputs):
            raise ValueError(f"Node '{node.name}': Connecting to invalid output {where[1]} of source node {where[0]} which has {len(source.outputs)} outputs")
        return source.outputs[where[1]]

    def _check_inputs(self, node: Any, opdef: OpDef, inputs: list[Tensor | None], wanted: list[DType]) -> None:
        if len(inputs) != len(wanted):
            raise ValueError(
                f"NodeDef expected inputs '{', '.join(t.name for t in wanted[:100])}' do not match {len(inputs)} inputs specified; "
                f"Op<{opdef.signature}>; NodeDef: '{node.name}'"
            )
        for i, (tensor, want) in enumerate(zip(inputs, wanted, strict=True)):
            if tensor is None:  # a back edge
                continue
            got = tensor.dtype
            if got is want or (got._is_ref_dtype and got.base_dtype is want):
                continue
            raise ValueError(f"Input {i} of node {self.prefix}{node.name} was passed {got.name} from {tensor.name} incompatible with expected {want.name}.")

    def _set_shapes(self, op: Operation, node: Any) -> None:
        infer_shapes(op)
        shapes = op.attrs.get("_output_shapes")
        if isinstance(shapes, list) and len(shapes) == len(op.outputs):
            for tensor, shape in zip(op.outputs, shapes, strict=True):
                if isinstance(shape, TensorShape) and compatible_dims(tensor.dims, shape._dims):
                    tensor.dims = merge_dims(tensor.dims, shape._dims)
            op.attrs = {k: v for k, v in op.attrs.items() if k != "_output_shapes"}

    def _wire_back_edges(self) -> None:
        for op, index, source, output in self.waiting:
            producer = self.names[source]
            if output >= len(producer.outputs):
                raise ValueError(f"Node '{op.name}': Connecting to invalid output {output} of source node {source} which has {len(producer.outputs)} outputs")
            tensor = producer.outputs[output]
            if tensor.dtype.base_dtype is not op.outputs[0].dtype.base_dtype:
                raise ValueError(f"Input {index} of node {op.name} was passed {tensor.dtype.name} from {tensor.name} incompatible with expected {op.outputs[0].dtype.name}.")
            op._update_input(index, tensor)

    def _free_name(self, taken: str) -> str:
        """`taken_1`, `taken_2`, ...: the first that neither the graph nor the GraphDef uses, as TF names what would clash."""
        number = 1
        while (name := f"{taken}_{number}").lower() in self.graph._names_in_use or name in self.graph or name in self.given:
            number += 1
        return name

    def _enter_scopes(self, added: list[Operation]) -> None:
        """The open scopes hold for imported nodes too: devices fill in what a node leaves open, loops and branches own it."""
        graph = self.graph
        context = graph._control_flow_context
        if graph._device_cache != "":
            for op in added:
                if not op.attrs.get("_class"):  # colocation decides
                    with graph.device(op.device or ""):
                        op.device = graph._device_for(op)
        if graph._controllers:
            for op in added:
                op._add_control_inputs(graph._control_inputs_for([t.op for t in op.inputs]))
                graph._record_op_seen(op)
        if context is None:
            return
        around = context
        while around is not None:  # imported values are inside already, also those that a back edge brings
            around._values.update(t for op in added for t in op.outputs)
            around = around._outer_context
        for op in added:
            op._control_flow_context = context
            context.AddOp(op)

    def _rename_colocation(self, op: Operation, by_name: dict[str, Any]) -> None:
        """Groups name nodes of the GraphDef; here these may have other names. Their device is the group's."""
        groups = []
        device = None
        for group in op.attrs["_class"]:
            if isinstance(group, bytes) and group.startswith(b"loc:@"):
                target = group[5:].decode("utf-8", "replace")
                if target not in by_name:
                    if not self.validate_colocation:
                        groups.append(group)
                        continue
                    raise ValueError(f"Node '{op.name}' expects to be colocated with unknown node '{target}'")
                group = b"loc:@" + self.names[target].name.encode()
                device = device or self.names[target].device
            groups.append(group)
        op.attrs = {**op.attrs, "_class": groups}
        if device and not self.internal:
            op.device = device


def _quick_parse(text: str) -> tuple[str, int]:
    if ":" not in text:
        if not text:
            raise ValueError(text)
        return text, 0
    name, _, index = text.rpartition(":")
    if not name or ":" in name or not index.isdigit():
        raise ValueError(text)
    return name, int(index)


_KIND_CLASSES: dict[str, tuple[type, ...]] = {
    "string": (bytes,), "int": (int,), "float": (float, int), "bool": (bool,), "type": (DType,), "shape": (TensorShape,),
    "tensor": (TensorAttr,), "func": (FuncAttr,),
}  # fmt: skip


def checked_kind(where: str, attr: Any, value: Any) -> Any:
    """An attribute's value must be of the declared kind; a missing value means the default."""
    if value is None:
        if attr.default is MISSING:
            raise ValueError(f"{where}: AttrValue for attr '{attr.name}' has no value, expected {attr.kind}")
        return attr.default
    kind = attr.kind
    is_list = kind.startswith("list(")
    values = value if is_list and isinstance(value, list) else [value]
    classes = _KIND_CLASSES[kind[5:-1] if is_list else kind]
    fits = (not is_list or isinstance(value, list)) and all(isinstance(v, classes) for v in values)
    if fits and classes == (int,):
        fits = not any(isinstance(v, bool) for v in values)
    if not fits:
        shown = repr(value)[:60]
        raise ValueError(f"{where}: AttrValue had value with unexpected type for attr '{attr.name}': expected {kind}, got {shown}")
    if classes == (DType,):
        for v in values:
            if v._is_ref_dtype:
                raise ValueError(f"{where}: AttrValue must not have reference type value of {v.name} for attr '{attr.name}'")
    return value
