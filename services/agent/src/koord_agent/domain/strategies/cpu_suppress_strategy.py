"""CPU suppression as a strategy. Ongoing contentions lower its threshold.

The decision itself is `domain.strategies.cpu_suppress.decide`. Source: agent spec, 11, 18.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from koordcore.protocol.config.node_strategies import ThresholdStrategy
from msgspec import structs

from koord_agent.domain.gate_names import BE_CPU_MANAGER, BE_CPU_SUPPRESS
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.strategies.cpu_suppress import PLUGIN, Decision, NodeView, SuppressMemory, decide, lowers
from koord_agent.domain.strategies.strategy import RESOURCE_THRESHOLD, CycleState, Needs, Pace, Proposal


class CpuSuppressStrategy:
    """Proposes the CPU limits of best-effort pods on one node.

    If it is switched off, it lifts the limits that it has set.
    """

    name = PLUGIN
    needs = Needs(section=RESOURCE_THRESHOLD, pace=Pace.SUPPRESS, node_slo=False)

    def __init__(self, is_enabled: Callable[[str], bool]) -> None:
        self._is_on = suppresses_cpu(is_enabled)
        self._memory = SuppressMemory()
        self._decision: Decision | None = None

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """The policy is `state.suppress`, which was parsed with the desired state."""
        return Proposal() if state.view is None else self._propose(state.view, state)

    def propose_less(self, state: CycleState) -> Proposal | None:
        """Propose lower limits between two cycles. None if they stay or rise; the last proposal holds then."""
        if state.view is None or not lowers(self._decide(state.view, state), state.view):
            return None
        return self._propose(state.view, state)

    def _propose(self, view: NodeView, state: CycleState) -> Proposal:
        self._memory = self._remembered(state)
        self._decision = self._decide(view, state)
        causes = state.effects.suppress_causes
        plans = self._decision.plans
        return Proposal([replace(plan, cause=causes[0]) for plan in plans] if causes else plans)

    def _decide(self, view: NodeView, state: CycleState) -> Decision:
        suppress = state.suppress
        if suppress is not None:
            suppress = (
                _lowered(suppress, state.effects.suppress_points)
                if self._is_on
                else structs.replace(suppress, enable=False)
            )
        return decide(view, suppress, self._remembered(state), ttl_ms=state.ttl_ms)

    def _remembered(self, state: CycleState) -> SuppressMemory:
        """The last decision counts once its values are in the files."""
        last = self._decision
        if last is not None and all(state.written.get(plan.file, True) for plan in last.plans):
            return last.memory
        return self._memory

    def decision(self, view: NodeView) -> Decision:
        """The last decision. If the strategy has not run yet, it is one without changes for this cycle's `view`."""
        return self._decision or decide(view, None, self._memory, ttl_ms=0)


def suppresses_cpu(is_enabled: Callable[[str], bool]) -> bool:
    """Whether the gates let this strategy limit best-effort pods."""
    return is_enabled(BE_CPU_SUPPRESS) and not is_enabled(BE_CPU_MANAGER)


def _lowered(policy: ThresholdStrategy, points: int) -> ThresholdStrategy:
    lowered = max(policy.cpu_suppress_threshold_percent - points, policy.cpu_suppress_min_percent or 0)
    return structs.replace(policy, cpu_suppress_threshold_percent=min(lowered, policy.cpu_suppress_threshold_percent))
