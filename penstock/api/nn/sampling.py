"""Losses that compare the true classes with a sample of the others: NCE and sampled softmax."""

from __future__ import annotations

from typing import Any

from penstock import dtypes
from penstock.api import array_ops, candidate_sampling, math_ops
from penstock.api.export import export
from penstock.api.framework import name_scope
from penstock.api.nn.embedding import embedding_lookup
from penstock.api.nn.losses import sigmoid_cross_entropy_with_logits, softmax_cross_entropy_with_logits_v2
from penstock.api.partitioned import PartitionedVariable
from penstock.graph.convert import convert_to_tensor
from penstock.graph.ir import Tensor
from penstock.graph.raw import raw


def _row_sums(x: Tensor) -> Tensor:
    """Sums of the rows of a matrix, as a product with ones."""
    columns = array_ops.shape(x)[1]
    ones = array_ops.ones(array_ops.stack([columns, 1]), x.dtype)
    return array_ops.reshape(raw.MatMul(x, ones), [-1])


def _sampled_logits(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int, num_true: int, sampled_values: Any,
    subtract_log_q: bool, remove_accidental_hits: bool, partition_strategy: str, name: str | None, default_name: str, seed: int | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(logits, labels), each (batch, num_true + num_sampled): the true classes first."""
    if isinstance(weights, PartitionedVariable):
        weights = list(weights)
    if not isinstance(weights, list):
        weights = [weights]
    with name_scope(name, default_name, [*weights, biases, inputs, labels]):
        labels = convert_to_tensor(labels)
        if labels.dtype != dtypes.int64:
            labels = math_ops.cast(labels, dtypes.int64)
        flat_labels = array_ops.reshape(labels, [-1])
        inputs = convert_to_tensor(inputs)
        if sampled_values is None:
            sampled_values = candidate_sampling.log_uniform_candidate_sampler(labels, num_true, num_sampled, True, num_classes, seed=seed)
        sampled, true_count, sampled_count = (array_ops.stop_gradient(v) for v in sampled_values)
        sampled = math_ops.cast(sampled, dtypes.int64) if sampled.dtype != dtypes.int64 else sampled

        all_ids = array_ops.concat([flat_labels, sampled], 0)
        all_weights = embedding_lookup(weights, all_ids, partition_strategy=partition_strategy)
        if all_weights.dtype != inputs.dtype:
            all_weights = math_ops.cast(all_weights, inputs.dtype)
        true_rows = array_ops.shape(flat_labels)[0]
        true_weights = raw.Slice(all_weights, [0, 0], array_ops.stack([true_rows, -1]))
        sampled_weights = raw.Slice(all_weights, array_ops.stack([true_rows, 0]), [-1, -1])
        sampled_logits = raw.MatMul(inputs, sampled_weights, transpose_b=True)

        all_biases = embedding_lookup(biases, all_ids, partition_strategy=partition_strategy)
        if all_biases.dtype != inputs.dtype:
            all_biases = math_ops.cast(all_biases, inputs.dtype)
        true_biases = raw.Slice(all_biases, [0], array_ops.shape(flat_labels))
        sampled_biases = raw.Slice(all_biases, array_ops.shape(flat_labels), [-1])

        # Each row of inputs with its own true classes: products, summed over the dimension of the embedding.
        dim = array_ops.shape(true_weights)[1:2]
        products = raw.Mul(
            array_ops.expand_dims(inputs, 1), array_ops.reshape(true_weights, array_ops.concat([[-1, num_true], dim], 0))
        )
        true_logits = array_ops.reshape(_row_sums(array_ops.reshape(products, array_ops.concat([[-1], dim], 0))), [-1, num_true])
        true_logits = true_logits + array_ops.reshape(true_biases, [-1, num_true])
        sampled_logits = sampled_logits + sampled_biases

        if remove_accidental_hits:
            hits = candidate_sampling.compute_accidental_hits(labels, sampled, num_true=num_true)
            rows, ids, hit_weights = hits
            places = array_ops.concat(
                [array_ops.reshape(rows, [-1, 1]), array_ops.reshape(math_ops.cast(ids, dtypes.int32), [-1, 1])], 1, "sparse_indices"
            )
            shape = array_ops.concat([array_ops.shape(labels)[:1], array_ops.expand_dims(num_sampled, 0)], 0)
            if hit_weights.dtype != sampled_logits.dtype:
                hit_weights = math_ops.cast(hit_weights, sampled_logits.dtype)
            zero = math_ops.cast(0.0, sampled_logits.dtype)
            sampled_logits = sampled_logits + raw.SparseToDense(places, shape, hit_weights, zero, validate_indices=False)

        if subtract_log_q:
            # Logits relative to how likely a class was to be drawn.
            true_logits = true_logits - raw.Log(math_ops.cast(true_count, true_logits.dtype))
            sampled_logits = sampled_logits - raw.Log(math_ops.cast(sampled_count, sampled_logits.dtype))
        logits = array_ops.concat([true_logits, sampled_logits], 1)
        shares = array_ops.ones_like(true_logits) / num_true
        return logits, array_ops.concat([shares, array_ops.zeros_like(sampled_logits)], 1)


@export("nn.nce_loss")
def nce_loss(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int, num_true: int = 1, sampled_values: Any = None,
    remove_accidental_hits: bool = False, partition_strategy: str = "mod", name: str = "nce_loss",
) -> Tensor:  # fmt: skip
    """The noise-contrastive estimation loss per row of `inputs`: logistic losses of true and sampled classes.

    `weights` is (classes, dim) or a list of its parts, `labels` (batch, num_true). By default candidates are drawn by Zipf's law,
    which wants classes sorted by falling frequency.
    """
    logits, targets = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, True, remove_accidental_hits,
        partition_strategy, name, "nce_loss", None,
    )  # fmt: skip
    losses = sigmoid_cross_entropy_with_logits(labels=targets, logits=logits, name="sampled_losses")
    return _row_sums(losses)


@export("nn.sampled_softmax_loss")
def sampled_softmax_loss(
    weights: Any, biases: Any, labels: Any, inputs: Any, num_sampled: int, num_classes: int, num_true: int = 1, sampled_values: Any = None,
    remove_accidental_hits: bool = True, partition_strategy: str = "mod", name: str = "sampled_softmax_loss", seed: int | None = None,
) -> Tensor:  # fmt: skip
    """A softmax loss over true and sampled classes only, for training with very many classes."""
    logits, targets = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, True, remove_accidental_hits,
        partition_strategy, name, "sampled_softmax_loss", seed,
    )  # fmt: skip
    targets = array_ops.stop_gradient(targets, name="labels_stop_gradient")
    return softmax_cross_entropy_with_logits_v2(labels=targets, logits=logits)
