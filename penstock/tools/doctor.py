"""Whether a GraphDef can run here: unknown ops, missing kernels, attributes that do not fit, functions that are not there."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock import errors
from penstock.graph.ir import Graph
from penstock.graph.opdef import OPS


class Report:
    """What `examine` found; prints as text."""

    def __init__(self) -> None:
        self.nodes = 0
        self.ops: Counter[str] = Counter()
        self.unknown: dict[str, list[str]] = {}
        self.without_kernel: dict[str, list[str]] = {}
        self.missing_functions: dict[str, list[str]] = {}
        self.import_error = ""

    @property
    def healthy(self) -> bool:
        return not (self.unknown or self.without_kernel or self.missing_functions or self.import_error)

    def __str__(self) -> str:
        lines = [f"{self.nodes} nodes of {len(self.ops)} kinds; most frequent: " + ", ".join(f"{n} {c}" for n, c in self.ops.most_common(6))]
        for title, table in (
            ("ops that are not known here", self.unknown),
            ("ops without a CPU kernel", self.without_kernel),
            ("functions that are called but not in the library", self.missing_functions),
        ):
            if table:
                lines.append(title + ":")
                lines += [f"  {name}: {len(nodes)} nodes, for example '{nodes[0]}'" for name, nodes in sorted(table.items())]
        if self.unknown:
            lines.append("an op can be added with penstock.ops.declare.op(signature, shape=..., numpy=...)")
        if self.import_error:
            lines.append(f"it does not import: {self.import_error}")
        lines.append("everything can run here" if self.healthy else "fetches that avoid these nodes can still run, once the graph is cut with tf.graph_util.extract_sub_graph")
        return "\n".join(lines)


def examine(graph_def: Any) -> Report:
    """Looks at every node of a GraphDef and of its functions."""
    report = Report()
    library = {f.signature.name for f in graph_def.library.function}
    rows = [(node, "") for node in graph_def.node]
    rows += [(node, f.signature.name + "/") for f in graph_def.library.function for node in f.node_def]
    for node, where in rows:
        report.nodes += 1
        report.ops[node.op] += 1
        name = where + node.name
        for value in node.attr.values():
            for func in [value.func] if value.WhichOneof("value") == "func" else list(value.list.func):
                if func.name and func.name not in library:
                    report.missing_functions.setdefault(func.name, []).append(name)
        if node.op in library:
            continue
        opdef = OPS.get(node.op)
        if opdef is None:
            report.unknown.setdefault(node.op, []).append(name)
        elif not opdef.has_kernel("CPU"):
            report.without_kernel.setdefault(node.op, []).append(name)
    if report.healthy:
        from penstock.graph.importer import import_graph_def

        try:
            with Graph().as_default():
                import_graph_def(graph_def, name="")
        except (ValueError, TypeError, errors.OpError) as error:
            report.import_error = str(error)
    return report
