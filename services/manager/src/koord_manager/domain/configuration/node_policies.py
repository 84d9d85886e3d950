"""The configuration in force, resolved for each node.

`nodes.policy_drafts` renders the policy of a node from it.

Source:
    protocol spec, 6; manager spec, 3, 4 and 5.2
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from koordcore.events.agents.observation import NodeUsageReported
from koordcore.protocol.config.config_map import NodeStrategies, SloControllerConfig, default_config, read_config_map
from koordcore.protocol.config.sections import SectionName
from koordcore.protocol.config.strategy import Strategy
from koordcore.protocol.config.typed import ColocationStrategy, colocation_strategy
from koordcore.protocol.objects import Node
from koordcore.state.aggregates import ConfigState, NodeHealth

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.configuration.slo_adjust_policy import SloAdjustPolicy, slo_adjust_policy
from koord_manager.domain.enabled import PLUGINS

_DEFAULT_COLOCATION: Final = default_config().sections[SectionName.COLOCATION].cluster


class NodePolicies:
    """Strategies of all nodes under the configuration in force.

    Args:
        sync_shared_gpus: Gate EnableSyncGPUSharedResource.
        plugins: Plugins that compute a node (`enabled.PLUGINS`); values of other plugins stay.

    Attributes:
        version: Sequence of the accepted configuration, or 0 for the defaults.
        config: All sections, resolved.
        slo_adjust: How the health of nodes is assessed, and how far it lowers thresholds.
    """

    def __init__(self, *, sync_shared_gpus: bool = False, plugins: frozenset[str] = frozenset(PLUGINS)) -> None:
        self.plugins = plugins
        self.version = 0
        self.sync_shared_gpus = sync_shared_gpus
        self.config: SloControllerConfig = default_config()
        self._strategies = NodeStrategies(self.config)
        self.slo_adjust = _slo_adjust(self.config)

    def refresh(self, view: ManagerView) -> None:
        """Put the folded ConfigMap in force; a section that cannot be read keeps its previous value.

        If the ConfigMap is deleted, the configuration in force stays until a restart.

        Source:
            manager spec, 3.3, 3.4
        """
        state = slo_config_state(view)
        accepted = state.object if state else None
        if accepted is None and self.version:
            return
        self.accept(accepted.data if accepted else None, state.accepted_seq if state and accepted else 0)

    def accept(self, data: Mapping[str, str] | None, version: int) -> None:
        """Put the data of a ConfigMap in force, or None if there is no ConfigMap."""
        self.version = version
        self.config = read_config_map(self.config, data).config
        self._strategies = NodeStrategies(self.config)
        self.slo_adjust = _slo_adjust(self.config)

    def configured(self, token: str, node: Node) -> ColocationStrategy:
        """Return the configured colocation strategy of a node; disabled if no valid configuration was ever accepted."""
        found = self._strategies.colocation(node.metadata.labels, node.metadata.annotations)
        if found is None:
            found = colocation_strategy(_DEFAULT_COLOCATION)
        if found.enable and not self._strategies.cluster_colocation_enabled:
            return msgspec.structs.replace(found, enable=False)
        return found

    def colocation(self, token: str, node: Node, health: NodeHealth | None = None) -> ColocationStrategy:
        """Return the strategy in force: as configured, with the reclaim thresholds lowered by the node's health.

        Source:
            manager spec, 16.4
        """
        found = self.configured(token, node)
        if not self.slo_adjust.enable or health is None or not any(health.offsets.values()):
            return found
        offsets = health.offsets
        return msgspec.structs.replace(
            found,
            cpu_reclaim_threshold_percent=max(0, found.cpu_reclaim_threshold_percent + offsets.get("cpu", 0)),
            memory_reclaim_threshold_percent=max(0, found.memory_reclaim_threshold_percent + offsets.get("memory", 0)),
        )

    def measuring(self, node: Node, *, measures_already: bool) -> Strategy | None:
        """Return the strategy by which the node's agent measures, in wire spelling.

        Return None if its present policy stays.

        If colocation is off on the node, the defaults apply. While the configuration is missing or invalid, the
        defaults apply to nodes without a policy, and other nodes keep theirs.

        Source:
            manager spec, 4.2
        """
        if self.config.colocation_error:
            return None if measures_already else _DEFAULT_COLOCATION
        strategy = self.config.strategy_for(SectionName.COLOCATION, node.metadata.labels, node.metadata.annotations)
        return strategy if strategy is not None and strategy["enable"] is True else _DEFAULT_COLOCATION


def report_expiry(report: NodeUsageReported, strategy: ColocationStrategy) -> float:
    """Return the time, in seconds, after which a node's report is too old to rely on."""
    return datetime.fromisoformat(report.updated_at).timestamp() + strategy.degrade_time_minutes * 60


def slo_config_state(view: ManagerView) -> ConfigState | None:
    """Return the state of the configuration ConfigMap, or None if it is unknown."""
    names = view.admission.names
    return view.config(names.slo_namespace, names.slo_name)


def _slo_adjust(config: SloControllerConfig) -> SloAdjustPolicy:
    return slo_adjust_policy(config.sections[SectionName.SLO_ADJUST].cluster)
