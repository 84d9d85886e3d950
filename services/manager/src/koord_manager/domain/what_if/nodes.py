"""Repeat the manager's decisions about nodes, under the recorded configuration or another one.

A repeated decision uses the facts, the report and the time of the recorded one. If the tried configuration has another
effect on a node, the node is also decided at the beginning, at every retained report, and at the end, because the
manager would have decided it then.

Source:
    manager spec, 5.1 to 5.7, 5.10, 5.11, 6, 4.2, 14, 16, 17.3
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec
from koordcore.events.envelope import HEADER_OCCURRED_AT, AggregateRef, BasedOn, Event, StoredEvent, name_from_token
from koordcore.events.nodepolicy import (
    ConfigWarned,
    MassAbnormalityChanged,
    NodeHealthAssessed,
    NodeOvercommitComputed,
    NodeSloRendered,
)
from koordcore.events.observation import NodeUsageReported
from koordcore.events.quota import QuotaProfileDropped, QuotaProfileRendered
from koordcore.state.aggregates import CustomObjectState, NodePolicyState
from koordcore.state.cluster import evolve

from koord_manager.domain.admission.config_maps import config_warnings
from koord_manager.domain.admission.context.facts import QUOTA_PROFILES
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import QUOTA_PROFILE
from koord_manager.domain.controllers.configuration import NodeInputs, NodePolicies, slo_config_state
from koord_manager.domain.controllers.node_policies import OVERCOMMITTED, RENDERED, NodeDecision
from koord_manager.domain.controllers.quota_profiles import render
from koord_manager.domain.what_if.health import CHANGES_THRESHOLDS, TriedHealth, repeat_guard, step_again
from koord_manager.domain.what_if.health import is_alike as is_guarded_alike
from koord_manager.domain.what_if.recording import RecordedFlags, Report, Tally

REPEATED_DECISIONS: Final = (NodeHealthAssessed, *(decision.event for decision in (*RENDERED, OVERCOMMITTED)))
_VARYING: Final = {"config_version": 0, "based_on": BasedOn()}


@dataclass(frozen=True, slots=True)
class NodeFate:
    """A node whose policies (such as overcommit, NodeSLO, health) differ between recording and re-run at the end."""

    node: str
    recorded: NodePolicyState | None  # Recorded policies, or None if nothing was published
    rerun: NodePolicyState | None  # Policies of the re-run, or None if nothing would be published


def is_alike(found: Event, recorded: Event) -> bool:
    """Return whether a repeated decision about a node equals the recorded one, apart from versions and positions."""
    return without_version(found) == without_version(recorded)


def without_version(event: Event | None) -> Event | None:
    """Return a decision without the configuration version and the positions that it was based on; None for None."""
    if event is None:
        return None
    return msgspec.structs.replace(event, **{name: value for name, value in _VARYING.items() if hasattr(event, name)})


def compared_fields(policy: NodePolicyState | None) -> tuple[object, ...]:
    """Return the fields of a node's policies by which recording and re-run are compared; of empty policies for None."""
    found = policy or NodePolicyState(seq=0)
    amounts = (found.batch_cpu_milli, found.batch_memory_bytes, found.mid_cpu_milli, found.mid_memory_bytes)
    return (
        *amounts,
        found.zones,
        found.slo,
        found.metric_policy,
        found.cpu_normalization,
        found.amplification,
        level_of(found),
        found.devices,
        found.device_labels,
    )


def level_of(policy: NodePolicyState) -> tuple[str, int, dict[str, int]] | None:
    """Return the level, weight and threshold offsets of a node's health, or None if health never had an effect."""
    health = policy.health
    return (health.level, health.reported_weight, health.offsets) if health is not None else None


MAX_RATIO_CYCLES: Final = 3
"""Amplification follows a new normalization one cycle later."""
_DECISION_OF: Final[Mapping[type[Event], NodeDecision]] = {each.event: each for each in (*RENDERED, OVERCOMMITTED)}


@dataclass(slots=True)
class _Taken:
    ordered: Sequence[Report]
    # (node token, time of the report) -> the report.
    of: dict[tuple[str, str], NodeUsageReported] = field(default_factory=dict[tuple[str, str], NodeUsageReported])
    # Node token -> the newest report used so far.
    newest: dict[str, NodeUsageReported] = field(default_factory=dict[str, NodeUsageReported])
    count: int = 0


class NodeDecisions:
    """Repeats the decisions about nodes in a what-if run, and keeps the policies that the re-run would publish.

    Args:
        reports: Retained usage reports in order.
        chosen: Data of slo-controller-config to try, or None for the recorded one.
    """

    def __init__(
        self, view: ManagerView, reports: Sequence[Report], chosen: Mapping[str, str] | None, flags: RecordedFlags
    ) -> None:
        self.view = view
        self.rerun: dict[str, NodePolicyState] = {}  # Node token -> policies that the re-run would publish
        self.tally = Tally()  # Numbers of decisions in the window, including root quotas of profiles
        self._flags = flags
        self._in_force = self._policies()
        self._in_force.refresh(view)
        self._versions: dict[int, NodePolicies] = {self._in_force.version: self._in_force}
        self._chosen: NodePolicies | None = None
        self._health: TriedHealth | None = None
        if chosen is not None:
            self._chosen = self._policies()
            self._chosen.accept(chosen, 0)
            self._health = TriedHealth(view, self._chosen)
        self._reports = _Taken(reports, {(report.node, report.event.updated_at): report.event for report in reports})

    def reconfigured(self) -> None:
        """Use the folded slo-controller-config as the recorded one from now on, because a fact has changed it."""
        self._in_force = copy.copy(self._in_force)
        self._in_force.refresh(self.view)
        self._versions[self._in_force.version] = self._in_force

    def begin(self, now: str) -> None:
        """Start with the recorded policies of all nodes, then decide those that a tried configuration changes.

        `now` is RFC 3339, or empty if no fact was folded.
        """
        self.rerun = dict(self.view.state.of_kind(NodePolicyState))
        self.take_in_reports(now, looks=False)
        if now:
            self._assess_health(now)
        self._decide_changed_nodes(now)

    def end(self, now: str, until: str | None) -> None:
        """Use the reports up to `until` (None: all), then decide the nodes that the tried configuration changes."""
        self._decide_changed_nodes(max(now, self.take_in_reports(until, looks=True)))

    def fates(self) -> list[NodeFate]:
        """Return the existing nodes whose policies differ between recording and re-run, by name."""
        recorded = self.view.state.of_kind(NodePolicyState)
        fates = [
            NodeFate(name_from_token(token), recorded.get(token), self.rerun.get(token))
            for token in sorted(recorded.keys() | self.rerun.keys())
            if self.view.node(token) is not None
        ]
        return [fate for fate in fates if compared_fields(fate.recorded) != compared_fields(fate.rerun)]

    def take_in_reports(self, until: str | None, *, looks: bool) -> str:
        """Take in the reports up to an RFC 3339 time (None: all); return the time of the last one, or "".

        `looks`: whether to decide the node of each report again, if the tried configuration concerns the node.
        """
        reports, last = self._reports, ""
        while reports.count < len(reports.ordered):
            report = reports.ordered[reports.count]
            if until is not None and report.reported_at > until:
                break
            reports.count += 1
            reports.newest[report.node] = report.event
            last = max(last, report.reported_at)
            if looks:
                self._decide_changed_node(report.node, report.reported_at)
                self._assess_health(report.reported_at)
        return last

    def repeat(self, stored: StoredEvent, recorded: Event) -> None:
        """Repeat a recorded decision about a node with the report and time of the recorded one, and count the result.

        If the node is gone, or the controller did not run by the flags, the re-run takes the recorded result. It also
        does so if the report is not retained and the tried configuration does not concern the node.
        """
        self.tally.recorded += 1
        token, decision = stored.ref.id, _DECISION_OF.get(type(recorded))
        at = self._at(token, self._policies_of(getattr(recorded, "config_version", 0)), stored.occurred_at)
        if at is None or not self._runs(decision):
            self.set_published(token, recorded, stored)
            return
        if isinstance(recorded, NodeOvercommitComputed):
            at = at._replace(report=self._reports.of.get((token, recorded.metric_updated_at)))
            if at.report is None and recorded.metric_updated_at:
                self.tally.not_retained += 1
                if not self._is_changed(token):
                    self.set_published(token, recorded, stored)
                return
        if isinstance(recorded, NodeHealthAssessed):
            if self._assesses_health():
                return
            found = step_again(at, recorded)
        else:
            assert decision is not None
            found = decision.decide(at)
        if found is not None:
            self.tally.rerun += 1
            self.tally.same += is_alike(found, recorded)
            self.set_published(token, found, stored)

    def repeat_guard(self, _: StoredEvent, recorded: MassAbnormalityChanged) -> None:
        """Repeat the recorded check whether more nodes look abnormal than may be lowered, and count the result.

        If another slo-adjust-config is tried, the check is counted as recorded and not repeated.
        """
        self.tally.recorded += 1
        if not self._assesses_health():
            found = repeat_guard(self._chosen or self._in_force, self.view, self.rerun, recorded)
            self.tally.rerun += 1
            self.tally.same += is_guarded_alike(found, recorded)

    def repeat_warnings(self, _: StoredEvent, recorded: ConfigWarned) -> None:
        self.tally.recorded += 1
        state = slo_config_state(self.view)
        present = state is not None and state.object is not None
        self.tally.rerun += 1
        policies = self._versions.get(recorded.config_version, self._in_force)
        self.tally.same += (config_warnings(policies.config) if present else {}) == recorded.warnings

    @property
    def mass_abnormal(self) -> bool | None:
        """Whether more nodes look abnormal than `maxAbnormalRatio` permits; None if no other section is tried."""
        return self._health.mass_abnormal if self._health is not None and self._assesses_health() else None

    def repeat_root_quota(self, stored: StoredEvent, recorded: QuotaProfileRendered) -> None:
        """Repeat the recorded root quota of a profile, and count the result; no tried configuration changes it."""
        self.tally.recorded += 1
        profile = self.view.state.of_kind(CustomObjectState).get(f"{QUOTA_PROFILES}={stored.ref.id}")
        if profile is not None and QUOTA_PROFILE in self._flags.controllers:
            nodes = [node for token in self.view.nodes() if (node := self.view.node(token)) is not None]
            self.tally.rerun += 1
            self.tally.same += render(profile, nodes) == recorded

    def repeat_dropped_quota(self, stored: StoredEvent, _: QuotaProfileDropped) -> None:
        """Repeat that a recorded root quota is dropped, and count the result: equal if the profile is gone."""
        self.tally.recorded += 1
        if QUOTA_PROFILE in self._flags.controllers:
            is_gone = f"{QUOTA_PROFILES}={stored.ref.id}" not in self.view.state.of_kind(CustomObjectState)
            self.tally.rerun += is_gone
            self.tally.same += is_gone

    def set_published(self, token: str, event: Event, stored: StoredEvent) -> None:
        """Apply an event to the policies of a node in the re-run, with position and time of a recorded fact."""
        state = evolve(self.rerun.get(token), event, stored)
        assert isinstance(state, NodePolicyState)
        self.rerun[token] = state

    # --- what is decided ---------------------------------------------------------------------------------------------

    def _policies(self) -> NodePolicies:
        return NodePolicies(plugins=self._flags.plugins, sync_shared_gpus=self._flags.sync_shared_gpus)

    def _policies_of(self, version: int) -> NodePolicies:
        return self._chosen or self._versions.get(version, self._in_force)

    def _at(self, token: str, policies: NodePolicies, now: str) -> NodeInputs | None:
        """The inputs of a decision in the re-run, or None if the node does not exist."""
        node = self.view.node(token)
        if node is None:
            return None
        published, report = self.rerun.get(token), self._reports.newest.get(token)
        return NodeInputs(self.view, token, node, policies, published, report, datetime.fromisoformat(now))

    def _runs(self, decision: NodeDecision | None) -> bool:
        """Return whether the controller of a decision ran in the recorded manager. None cannot be switched off."""
        return decision is None or decision.enabled_as in self._flags.controllers

    def _assesses_health(self) -> bool:
        """Return whether health is assessed by the tried configuration instead of repeated."""
        return self._chosen is not None and self._chosen.slo_adjust != self._in_force.slo_adjust

    def _assess_health(self, now: str) -> None:
        """Assess all nodes under the tried configuration if that is due, and apply the new thresholds."""
        health = self._health
        if health is None or not health.is_due(now) or not self._assesses_health():
            return
        for token, event in list(health.round(self.rerun, self._reports.newest, now)):
            self._publish(token, event, now)
            if event.cause in CHANGES_THRESHOLDS and self._chosen is not None:
                slo = _DECISION_OF[NodeSloRendered]
                if self._runs(slo) and (at := self._at(token, self._chosen, now)) is not None:
                    self._publish(token, slo.decide(at), now)
                self._decide_changed_node(token, now)

    def _decide_changed_nodes(self, now: str) -> None:
        if self._chosen is None:
            return
        for token in sorted(self.view.nodes()):
            for decision in filter(self._runs, RENDERED):
                chosen, in_force = (
                    without_version(decision.decide(at._replace(published=None)))
                    for policies in (self._chosen, self._in_force)
                    if (at := self._at(token, policies, now)) is not None
                )
                if chosen == in_force:
                    continue
                for _ in range(MAX_RATIO_CYCLES):
                    if (at := self._at(token, self._chosen, now)) is not None:
                        self._publish(token, decision.decide(at), now)
            self._decide_changed_node(token, now)

    def _decide_changed_node(self, token: str, now: str) -> None:
        if self._chosen is None or not self._runs(OVERCOMMITTED) or not self._is_changed(token):
            return
        at = self._at(token, self._chosen, now)
        if at is not None and at.report is not None:
            self._publish(token, OVERCOMMITTED.decide(at), now)

    def _is_changed(self, token: str) -> bool:
        tried = self._at(token, self._chosen or self._in_force, "0001-01-01")
        if self._chosen is None or tried is None:
            return False
        recorded = tried._replace(policies=self._in_force, published=self.view.policy(token))
        return tried.normalization != recorded.normalization or tried.colocation != recorded.colocation

    def _publish(self, token: str, event: Event | None, now: str) -> None:
        if event is not None:
            self.tally.rerun += 1
            stored = StoredEvent(
                self.view.state.position, AggregateRef("nodepolicy", token), {HEADER_OCCURRED_AT: now}, b""
            )
            self.set_published(token, event, stored)
