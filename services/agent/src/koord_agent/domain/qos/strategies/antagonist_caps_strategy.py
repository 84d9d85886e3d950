"""Caps of antagonists as a strategy: pods that slow another one down get a small quota for some minutes.

`domain.qos.contention.cpi_detection` chooses the pods, `cpi_caps` creates the plans. Source: agent spec, 18.
"""

from collections.abc import Mapping
from typing import Any

from koord_agent.domain.qos.contention.cpi_caps import PLUGIN, Caps
from koord_agent.domain.qos.strategy import CycleState, Needs, Pace, Proposal
from koord_agent.domain.state.node_look import NodeLook


class AntagonistCapsStrategy:
    """Proposes the CPU quotas of pods that disturb others on one node. They are lifted when the agent stops."""

    name = PLUGIN
    needs = Needs(pace=Pace.EVERY_CYCLE, node_slo=False)

    def __init__(self, caps: Caps) -> None:
        """Use the caps that the detection sets."""
        self._caps = caps

    def propose(self, look: NodeLook, policy: Mapping[str, Any], state: CycleState) -> Proposal:
        """Propose the CPU quotas of pods that disturb others for this cycle. See `Strategy.propose`."""
        return Proposal(self._caps.plans(look, state.readings.quota_us, ttl_ms=state.ttl_ms, ends=state.is_last))
