"""The slo-controller-config in force, and the strategies that it gives each node.

`node_policies` renders the policies of nodes from it. Its warnings are recorded as a fact.

Source:
    protocol spec, 6; manager spec, 3, 4, 5.2, 16.1, 18 (limits to state to users)
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, namespaced_token
from koordcore.events.nodepolicy import ConfigWarned
from koordcore.events.observation import NodeUsageReported
from koordcore.protocol import keys
from koordcore.protocol.config.config_map import NodeStrategies, SloControllerConfig, default_config, read_config_map
from koordcore.protocol.config.fields import typed
from koordcore.protocol.config.sections import ColocationStrategy, SectionName
from koordcore.protocol.config.strategy import Strategy
from koordcore.protocol.objects import Node
from koordcore.state.aggregates import ConfigState, NodeHealth, NodePolicyState

from koord_manager.domain.admission.config_maps import config_warnings
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import PLUGINS


class SignalBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one signal of node health, such as CPU utilization, in the unit of the signal."""

    warn: float  # Value at which the severity of the signal is 0; above it, the severity grows linearly
    critical: float  # Value from which the severity is 1


class SloAdjustPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The section slo-adjust-config: when nodes count as unhealthy, and by how much they are lowered."""

    enable: bool
    interval_seconds: int  # Time between two assessments
    smoothing_factor: float  # Weight of the present assessment in the smoothed abnormality, from 0 to 1
    warn_level: float  # Abnormality (0 to 1) from which a healthy node becomes Warning
    critical_level: float  # Abnormality from which a node becomes Critical
    recover_level: float  # Abnormality below which a node becomes Healthy again
    min_weight: int  # Lowest weight of a node, of 100
    step_down: int  # Percent points by which thresholds fall with each assessment as Critical
    step_up: int  # Percent points by which they rise with each assessment as Healthy
    max_drop: int  # Maximum fall of a threshold in percent points
    healthy_rounds_before_raise: int  # Number of healthy assessments in a row before thresholds rise
    suppress_floor_percent: int  # Health never lowers cpuSuppressThresholdPercent below this
    memory_evict_floor_percent: int  # Health never lowers memoryEvictThresholdPercent below this
    max_abnormal_ratio: float  # Maximum share of nodes with a lowered weight, from 0 to 1
    signals: dict[str, SignalBounds]  # Name of a signal -> its bounds


def slo_adjust_policy(strategy: Strategy) -> SloAdjustPolicy:
    """Return the strategy of slo-adjust-config, into which its defaults are merged, as a typed value."""
    return msgspec.convert(strategy, SloAdjustPolicy)


_DEFAULT_COLOCATION: Final = default_config().sections[SectionName.COLOCATION].cluster


class NodePolicies:
    """The slo-controller-config in force, and the strategies that it gives each node.

    Args:
        sync_shared_gpus: Whether nodes get the resource `gpu.shared` (gate EnableSyncGPUSharedResource). plugins: Names
        of the node resource plugins that run (`controller_names.PLUGINS`). What other plugins compute is not
            changed.
    """

    def __init__(self, *, sync_shared_gpus: bool = False, plugins: frozenset[str] = frozenset(PLUGINS)) -> None:
        self.plugins = plugins
        self.version = 0  # Position of the event that accepted the configuration, or 0 for the defaults
        self.sync_shared_gpus = sync_shared_gpus
        self.config: SloControllerConfig = default_config()  # All sections with their defaults
        self._strategies = NodeStrategies(self.config)
        self.slo_adjust = _slo_adjust(self.config)  # Settings of node health

    def refresh(self, view: ManagerView) -> None:
        """Read the folded ConfigMap slo-controller-config. If a section is not valid, its previous value stays.

        If the ConfigMap is deleted, its last values stay in force until a restart (manager spec, 3.3, 3.4).
        """
        state = slo_config_state(view)
        accepted = state.object if state else None
        if accepted is None and self.version:
            return
        self.accept(accepted.data if accepted else None, state.accepted_seq if state and accepted else 0)

    def accept(self, data: Mapping[str, str] | None, version: int) -> None:
        """Put the data of a ConfigMap into force.

        Args:
            data: Section key -> JSON text, or None for a missing ConfigMap; then the defaults apply.
            version: Position of the event that accepted the data, or 0 for the defaults.
        """
        self.version = version
        self.config = read_config_map(self.config, data).config
        self._strategies = NodeStrategies(self.config)
        self.slo_adjust = _slo_adjust(self.config)

    def configured(self, token: str, node: Node) -> ColocationStrategy:
        """Return the configured colocation strategy of a node; a disabled one if there is no valid configuration.

        The first node entry whose selector matches is merged into the cluster strategy. The node's own annotation and
        ratio labels are merged into the result. If the cluster strategy is disabled, the result is disabled, too.
        `token` is not read: all strategies follow from `node`.
        """
        found = self._strategies.colocation(node.metadata.labels, node.metadata.annotations)
        if found is None:
            found = typed(ColocationStrategy, _DEFAULT_COLOCATION)
        if found.enable and not self._strategies.cluster_colocation_enabled:
            return msgspec.structs.replace(found, enable=False)
        return found

    def colocation(self, token: str, node: Node, health: NodeHealth | None = None) -> ColocationStrategy:
        """Return the colocation strategy of a node, lowered by its health (manager spec, 16.4)."""
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
        """Return the strategy by which the node's agent measures and reports, or None if its present one stays.

        If colocation is off on the node, the defaults apply. If the configuration is invalid, the defaults apply to
        nodes without a measuring policy, and the other nodes keep theirs.

        Source: manager spec, 4.2.
        """
        if self.config.colocation_error:
            return None if measures_already else _DEFAULT_COLOCATION
        strategy = self.config.strategy_for(SectionName.COLOCATION, node.metadata.labels, node.metadata.annotations)
        return strategy if strategy is not None and strategy["enable"] is True else _DEFAULT_COLOCATION


class NodeInputs(NamedTuple):
    """What the decisions about one node read. A re-run gives them another configuration, other policies or reports."""

    view: ManagerView
    token: str  # name of the node, as a part of NATS subjects (`.` is `_`)
    node: Node
    policies: NodePolicies
    published: NodePolicyState | None  # last published policies of the node; None if nothing was published
    report: NodeUsageReported | None  # the newest usage report; None if none was received
    now: datetime

    @property
    def normalization(self) -> str | None:
        """The text of the node's cpu normalization ratio, or None if it has none.

        A ratio that the manager computed takes precedence over the annotation of the node (manager spec, 5.5 (2)).
        """
        if self.published is not None and self.published.cpu_normalization is not None:
            return self.published.cpu_normalization
        return self.node.metadata.annotations.get(keys.CPU_NORMALIZATION_RATIO)

    @property
    def colocation(self) -> ColocationStrategy:
        """The colocation strategy of the node, lowered by its published health."""
        return self.policies.colocation(self.token, self.node, self.published.health if self.published else None)

    @property
    def based_on(self) -> BasedOn:
        return BasedOn(ev=self.view.state.position, obs=self.view.obs_position)


def present_inputs(policies: NodePolicies, view: ManagerView, token: str, now: datetime) -> NodeInputs | None:
    """Return the inputs as they are now, or None if the node does not exist."""
    node = view.node(token)
    return NodeInputs(view, token, node, policies, view.policy(token), view.reports.get(token), now) if node else None


def policy_draft(view: ManagerView, token: str, event: Event) -> Draft:
    """Return a fact about the policies of a node."""
    ref = AggregateRef("nodepolicy", token)
    return Draft(ref, event, view.state.last_seq(ref))


def report_expiry(report: NodeUsageReported, strategy: ColocationStrategy) -> float:
    """Return the Unix time in seconds after which a usage report is too old: its time plus `degradeTimeMinutes`."""
    return datetime.fromisoformat(report.updated_at).timestamp() + strategy.degrade_time_minutes * 60


def slo_config_state(view: ManagerView) -> ConfigState | None:
    """Return the folded state of the ConfigMap slo-controller-config, or None if it was never observed."""
    names = view.admission.names
    return view.config(names.slo_namespace, names.slo_name)


def _slo_adjust(config: SloControllerConfig) -> SloAdjustPolicy:
    return slo_adjust_policy(config.sections[SectionName.SLO_ADJUST].cluster)


def warning_drafts(policies: NodePolicies, view: ManagerView) -> list[Draft]:
    """Return the fact `ConfigWarned` if the warnings about slo-controller-config differ from the recorded ones."""
    state = slo_config_state(view)
    warnings = config_warnings(policies.config) if state is not None and state.object is not None else {}
    if state is None or warnings == state.warnings:
        return []
    names = view.admission.names
    event = ConfigWarned(
        namespace=names.slo_namespace, name=names.slo_name, warnings=warnings, config_version=policies.version
    )
    ref = AggregateRef("config", namespaced_token(names.slo_namespace, names.slo_name))
    return [Draft(ref, event, view.state.last_seq(ref))]
