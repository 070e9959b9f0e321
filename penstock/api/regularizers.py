"""The losses that a graph has collected, its regularization losses among them (`tf.losses.get_total_loss` and relatives)."""

from __future__ import annotations

from typing import Any

from penstock.api.export import export, resolve
from penstock.graph.constant import constant
from penstock.graph.defaults import get_default_graph
from penstock.graph.ir import Tensor
from penstock.graph.keys import GraphKeys
from penstock.graph.raw import raw


@export("losses.add_loss")
def add_loss(loss: Any, loss_collection: str | None = GraphKeys.LOSSES) -> None:
    """Adds a loss to the collection of losses; does nothing if `loss_collection` is None."""
    if loss_collection:
        get_default_graph().add_to_collection(loss_collection, loss)


@export("losses.get_losses")
def get_losses(scope: str | None = None, loss_collection: str = GraphKeys.LOSSES) -> list[Any]:
    """The losses that were added, those of `scope` if given."""
    return get_default_graph().get_collection(loss_collection, scope)


@export("losses.get_regularization_losses")
def get_regularization_losses(scope: str | None = None) -> list[Any]:
    """The losses that variables' regularizers made, those of `scope` if given."""
    return get_default_graph().get_collection(GraphKeys.REGULARIZATION_LOSSES, scope)


@export("losses.get_regularization_loss")
def get_regularization_loss(scope: str | None = None, name: str = "total_regularization_loss") -> Tensor:
    """The sum of the regularization losses; 0.0 if there are none."""
    losses = get_regularization_losses(scope)
    return raw.AddN(losses, name=name) if losses else constant(0.0)


@export("losses.get_total_loss")
def get_total_loss(
    add_regularization_losses: bool = True, name: str = "total_loss", scope: str | None = None
) -> Tensor:
    """The sum of all losses; ValueError if there are none at all."""
    losses = get_losses(scope=scope)
    if add_regularization_losses:
        losses = losses + get_regularization_losses(scope=scope)
    if not losses:
        raise ValueError(
            "The sum of losses is empty: no loss was added to the collection. Use tf.losses.add_loss or a function of tf.losses."
        )
    return raw.AddN(losses, name=name)


@export("nn.scale_regularization_loss")
def scale_regularization_loss(regularization_loss: Any) -> Tensor:
    """The sum of a regularization loss, as each replica should add it; there is one replica."""
    return resolve("reduce_sum")(regularization_loss)
