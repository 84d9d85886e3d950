"""The configuration in force, resolved for each node: colocation strategy, NodeSLO, and whose report has grown old.

source    protocol spec, 6; manager spec, 3, 5.2 and 6
"""

import heapq
from collections.abc import Sequence
from datetime import datetime

import msgspec
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.nodepolicy import NodeSloRendered
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol.config.config_map import NodeStrategies, SloControllerConfig, default_config, read_config_map
from koordcore.protocol.config.node_slo import render_node_slo
from koordcore.protocol.config.tables import SectionName
from koordcore.protocol.config.typed import ColocationStrategy, colocation_strategy
from koordcore.protocol.objects import Node

from koord_manager.domain.slo_config import SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE
from koord_manager.domain.view import ManagerView


class NodePolicies:
    """Strategies of all nodes under the configuration in force.

    version   sequence of the accepted configuration, 0 for the defaults
    """

    def __init__(self) -> None:
        self.version = 0
        self._config: SloControllerConfig = default_config()
        self._strategies = NodeStrategies(self._config)
        self._ages: list[tuple[float, str, str]] = []
        self._watched: dict[str, str] = {}

    def refresh(self, view: ManagerView) -> None:
        """Take in the ConfigMap as folded; a section that cannot be read keeps its previous value."""
        state = view.config(SLO_CONFIG_NAMESPACE, SLO_CONFIG_NAME)
        accepted = state.object if state else None
        self.version = state.accepted_seq if state and accepted else 0
        self._config = read_config_map(self._config, accepted.data if accepted else None).config
        self._strategies = NodeStrategies(self._config)

    def colocation(self, token: str, node: Node) -> ColocationStrategy:
        """The node's effective colocation strategy; disabled when no valid configuration was ever accepted."""
        found = self._strategies.colocation(node.metadata.labels, node.metadata.annotations)
        if found is None:
            found = colocation_strategy(default_config().sections[SectionName.COLOCATION].cluster)
        if found.enable and not self._strategies.cluster_colocation_enabled:
            return msgspec.structs.replace(found, enable=False)
        return found

    def slo_drafts(self, view: ManagerView, nodes: Sequence[str]) -> list[Draft]:
        """`NodeSloRendered` for those of the nodes whose effective NodeSLO differs from the published one."""
        drafts: list[Draft] = []
        for token in nodes:
            node = view.node(token)
            if node is None:
                continue
            spec = render_node_slo(self._config, node.metadata.labels, node.metadata.annotations, {}).spec
            published = view.policy(token)
            if published is None or published.slo != spec:
                ref = AggregateRef("nodepolicy", token)
                event = NodeSloRendered(spec=spec, config_version=self.version)
                drafts.append(Draft(ref, event, view.state.last_seq(ref)))
        return drafts

    def watch_age(self, token: str, report: NodeUsageReported | None, strategy: ColocationStrategy) -> None:
        """Remember when the node's report will be too old to rely on, so that `overdue` names the node then."""
        if report is None or self._watched.get(token) == report.updated_at:
            return
        self._watched[token] = report.updated_at
        updated = datetime.fromisoformat(report.updated_at).timestamp()
        heapq.heappush(self._ages, (updated + strategy.degrade_time_minutes * 60, token, report.updated_at))

    def overdue(self, now: datetime) -> set[str]:
        """Nodes whose newest watched report has become too old since the last call."""
        found: set[str] = set()
        while self._ages and self._ages[0][0] < now.timestamp():
            _, token, updated_at = heapq.heappop(self._ages)
            if self._watched.get(token) == updated_at:
                del self._watched[token]
                found.add(token)
        return found
