"""What a ConfigProto means to the local runtime.

Fields that have no meaning here are accepted; docs/config.md says which, and why.
"""

from __future__ import annotations

from typing import Any

from penstock import errors, names
from penstock.pipeline.optimise import PASSES, OptimiserOptions

# RewriterConfig's toggles -> passes. OFF (2) switches a pass off, ON (1) and AGGRESSIVE (3) switch it on.
_REWRITER_TOGGLES = {
    "constant_folding": "constant_folding",
    "arithmetic_optimization": "arithmetic",
    "dependency_optimization": "dependencies",
    "function_optimization": "function_inlining",
    "common_subgraph_elimination": "common_subexpressions",
    "remapping": "remapping",
}
_OFF, _ON, _AGGRESSIVE = 2, 1, 3


class SessionConfig:
    """A ConfigProto, read once: plain attributes for the session's parts."""

    def __init__(self, proto: Any) -> None:
        self.proto = proto
        graph = proto.graph_options
        self.soft_placement: bool = proto.allow_soft_placement
        self.log_placement: bool = proto.log_device_placement
        self.place_pruned_graph: bool = graph.place_pruned_graph
        self.compress_transfers: bool = graph.enable_bfloat16_sendrecv
        self.build_cost_model: int = graph.build_cost_model
        self.build_cost_model_after: int = graph.build_cost_model_after
        self.infer_shapes: bool = graph.infer_shapes
        self.timeout: float | None = proto.operation_timeout_in_ms / 1000.0 if proto.operation_timeout_in_ms > 0 else None
        self.isolate_session_state: bool = proto.isolate_session_state
        self.device_filters: list[str] = list(proto.device_filters)
        self.optimiser = self._optimiser(graph)
        level = graph.optimizer_options.global_jit_level
        self.xla: str | None = None if level == 0 else "0" if level < 0 else "eager"
        for spec in self.device_filters:
            try:
                names.DeviceSpec.from_string(spec)
            except ValueError as error:
                raise errors.InvalidArgumentError(f"device_filters: '{spec}' is not a device specification: {error}") from error

    def visible(self, devices: list[Any]) -> list[Any]:
        """The devices that the filters let through; the client's own device is always among them."""
        if not self.device_filters:
            return devices
        chosen = [d for d in devices if any(names.matches(spec, d.name) for spec in self.device_filters)]
        return chosen if devices[0] in chosen else [devices[0], *chosen]

    def _optimiser(self, graph: Any) -> OptimiserOptions:
        options, rewriter = graph.optimizer_options, graph.rewrite_options
        disabled: set[str] = set()
        enabled: set[str] = set()
        if rewriter.disable_meta_optimizer or options.opt_level < 0:
            # As in TF, single passes can be asked for on top of level L0.
            disabled = {p.name for p in PASSES}
            if options.do_constant_folding:
                enabled.add("constant_folding")
            if options.do_common_subexpression_elimination:
                enabled.add("common_subexpressions")
            if options.do_function_inlining:
                enabled.add("function_inlining")
        for field, name in _REWRITER_TOGGLES.items():
            toggle = getattr(rewriter, field)
            if toggle == _OFF:
                disabled.add(name)
                enabled.discard(name)
            elif toggle in (_ON, _AGGRESSIVE):
                enabled.add(name)
        budget = rewriter.meta_optimizer_timeout_ms / 1000.0 if rewriter.meta_optimizer_timeout_ms > 0 else 300.0
        return OptimiserOptions(disabled=frozenset(disabled), enabled=frozenset(enabled), budget=budget)
