"""Walking statements: what each reads and makes, the blocks inside of it, and all statements of a block.

Beside the kinds of `structure` there are those that passes make of them (elementwise runs, groups of products, offloaded segments): these have
`inputs` and `outputs`, and `blocks` if there are statements inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.engines.python.expressions import needed_inputs
from penstock.engines.python.structure import Assign, Branch, Call, Loop
from penstock.engines.turns import breathe
from penstock.graph.ir import Operation, Tensor


def reads(statement: Any) -> list[Tensor]:
    """Tensors that `statement` itself reads, without those of blocks inside of it."""
    if statement.__class__ is Call:
        return needed_inputs(statement.node)
    if isinstance(statement, Assign):
        return [statement.node.op.inputs[statement.index]]
    if isinstance(statement, Branch):
        return [statement.pred]
    if isinstance(statement, Loop):
        return [statement.again, *(t for _, first, next_ in statement.carried for t in (first, next_))]
    return statement.inputs


def makes(statement: Any) -> list[Tensor]:
    """Tensors that get their value in `statement` itself."""
    if isinstance(statement, (Call, Assign)):
        return statement.node.op.outputs
    if isinstance(statement, Loop):
        return [t for merge, _, _ in statement.carried for t in merge.op.outputs]
    return [] if isinstance(statement, Branch) else statement.outputs


def subblocks(statement: Any) -> tuple[list, ...]:
    if isinstance(statement, Branch):
        return (statement.yes, statement.no)
    if isinstance(statement, Loop):
        return (statement.cond, statement.body)
    return getattr(statement, "blocks", ())


def everything(block: list) -> Iterator[Any]:
    """All statements of a block, those inside of others too."""
    for statement in block:
        yield statement
        breathe()
        if statement.__class__ is not Call:
            for inner in subblocks(statement):
                yield from everything(inner)


def paths(block: list, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """(path, statement) of all statements: a path is index, block, index, block, ..., index."""
    for i, statement in enumerate(block):
        here = (*path, i)
        yield here, statement
        breathe()
        if statement.__class__ is not Call:
            for k, sub in enumerate(subblocks(statement)):
                yield from paths(sub, (*here, k))


def without(block: list, silent: set[Operation]) -> list:
    """The block without calls of `silent` nodes, and without branches that are empty then."""
    result = []
    for statement in block:
        if isinstance(statement, Branch):
            statement = statement._replace(yes=without(statement.yes, silent), no=without(statement.no, silent))
            if not statement.yes and not statement.no:
                continue
        elif isinstance(statement, Loop):
            statement = statement._replace(cond=without(statement.cond, silent), body=without(statement.body, silent))
        elif isinstance(statement, Call) and statement.node.op in silent:
            continue
        result.append(statement)
    return result
