"""What-if runs of node decisions: recorded decisions compared with decisions under another slo-controller-config."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

import msgspec
from koord_manager.domain.what_if.nodes import NodeDecisions, NodeFate, level_of
from koord_manager.domain.what_if.recording import Tally
from koordcore.events.nodepolicy import SLO_ADJUST
from koordcore.state.aggregates import ControllerState, NodePolicyState, policy_resources


class Lent(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Sums over all nodes of the batch and mid resources that the manager publishes."""

    nodes: int = 0  # Number of nodes with any batch or mid resource
    batch_cpu_milli: int = 0  # Batch CPU in milli-cores
    batch_memory_bytes: int = 0  # Batch memory in bytes
    mid_cpu_milli: int = 0  # Mid CPU in milli-cores
    mid_memory_bytes: int = 0  # Mid memory in bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeComparison:
    tally: Tally  # Numbers of decisions in the window
    fates: list[NodeFate]  # Nodes whose state differs at the end of the window
    # For the recording and for the re-run: whether at the end more nodes look abnormal than may have a lowered weight.
    mass_abnormal: tuple[bool, bool]
    before: Lent  # Recorded batch and mid resources at the end
    after: Lent  # Batch and mid resources of the re-run at the end

    def document(self) -> dict[str, Any]:
        return {
            "decisions": tally_document(self.tally),
            "before": msgspec.to_builtins(self.before),
            "after": msgspec.to_builtins(self.after),
            "massAbnormal": {"recorded": self.mass_abnormal[0], "rerun": self.mass_abnormal[1]},
            "nodes": [
                {
                    "node": fate.node,
                    "recorded": _lent_document(fate.recorded),
                    "rerun": _lent_document(fate.rerun),
                    **{part: [asdict(one) for one in differences(fate, part)] for part in PARTS},
                }
                for fate in self.fates
            ],
        }


def tally_document(tally: Tally) -> dict[str, int]:
    return {
        "recorded": tally.recorded,
        "rerun": tally.rerun,
        "same": tally.same,
        "notRetained": tally.not_retained,
    }


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that differs. None: that side does not have the field."""

    path: str  # Path of the field, with dots
    recorded: Any
    rerun: Any  # Its value in the re-run


def _devices(policy: NodePolicyState) -> dict[str, Any]:
    return {"resources": policy.devices, "labels": policy.device_labels}


def _health(policy: NodePolicyState) -> dict[str, Any]:
    level = level_of(policy)
    return dict(zip(("level", "weight", "offsets"), level, strict=True)) if level is not None else {}


def _ratios(policy: NodePolicyState) -> dict[str, str | None]:
    return {"cpuNormalization": policy.cpu_normalization, "amplification": policy.amplification}


PARTS: Final[Mapping[str, Callable[[NodePolicyState], Mapping[str, Any]]]] = {
    "nodeSLO": lambda policy: policy.slo or {},
    "measuring": lambda policy: policy.metric_policy or {},
    "ratios": _ratios,
    "devices": _devices,
    "health": _health,
}
"""Part of a node's policy, as it is named in the comparison -> its fields. A side without a policy has no fields."""


def differences(fate: NodeFate, part: str) -> list[Difference]:
    """The fields of one of `PARTS` that differ. The paths of nested fields have dots.

    Devices: `resources.NAME` and `labels.KEY`. Health: `level`, `weight` and, for each threshold that differs,
    `offsets.NAME`; if one side has no health, `level`, `weight` and `offsets`, with None on that side. Ratios are the
    texts of the node's annotations; None on a side without the annotation.
    """
    before, after = (PARTS[part](policy or NodePolicyState(seq=0)) for policy in (fate.recorded, fate.rerun))
    return list(_differences(before, after))


def lends_otherwise(fate: NodeFate) -> bool:
    """Whether batch or mid resources of a node, or of one of its NUMA zones, differ from the recording.

    A side without a policy counts as one without such resources.
    """
    before, after = fate.recorded or NodePolicyState(seq=0), fate.rerun or NodePolicyState(seq=0)
    return (policy_resources(before), before.zones) != (policy_resources(after), after.zones)


def compare_nodes(decided: NodeDecisions) -> NodeComparison:
    existing = decided.view.nodes()
    recorded = decided.view.state.of_kind(NodePolicyState)
    guard = decided.view.state.of_kind(ControllerState).get(SLO_ADJUST.id)
    was = guard is not None and guard.mass_abnormal
    return NodeComparison(
        mass_abnormal=(was, was if decided.mass_abnormal is None else decided.mass_abnormal),
        tally=decided.tally,
        fates=decided.fates(),
        before=_lent(recorded[token] for token in existing if token in recorded),
        after=_lent(decided.rerun[token] for token in existing if token in decided.rerun),
    )


def _lent(policies: Iterable[NodePolicyState]) -> Lent:
    lending = [policy for policy in policies if policy.batch_cpu_milli is not None or policy.mid_cpu_milli is not None]
    return Lent(
        nodes=len(lending),
        batch_cpu_milli=sum(policy.batch_cpu_milli or 0 for policy in lending),
        batch_memory_bytes=sum(policy.batch_memory_bytes or 0 for policy in lending),
        mid_cpu_milli=sum(policy.mid_cpu_milli or 0 for policy in lending),
        mid_memory_bytes=sum(policy.mid_memory_bytes or 0 for policy in lending),
    )


def _lent_document(policy: NodePolicyState | None) -> dict[str, Any] | None:
    """The published resources, their reason, and the terms of the formulas as JSON values."""
    if policy is None:
        return None
    return {
        "batchCpuMilli": policy.batch_cpu_milli,
        "batchMemoryBytes": policy.batch_memory_bytes,
        "midCpuMilli": policy.mid_cpu_milli,
        "midMemoryBytes": policy.mid_memory_bytes,
        "reason": policy.reason,
        "computedAt": policy.computed_at,
        "terms": msgspec.to_builtins(policy.terms),
        "midTerms": msgspec.to_builtins(policy.mid_terms),
        "zones": msgspec.to_builtins(policy.zones),
    }


def _differences(recorded: Mapping[str, Any], rerun: Mapping[str, Any], at: str = "") -> Iterator[Difference]:
    for name in sorted(recorded.keys() | rerun.keys()):
        before, after = recorded.get(name), rerun.get(name)
        path = f"{at}.{name}" if at else name
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(cast("dict[str, Any]", before), cast("dict[str, Any]", after), path)
        elif before != after:
            yield Difference(path, before, after)
