"""What another slo-controller-config would have made of nodes: recorded decisions taken again, effects off.

    before(stored)    facts up to the beginning
    rerun(events)     what comes after it: everything is as recorded, but for what the manager published of nodes from
                      the configuration: batch and mid resources, NodeSLO, how agents measure, ratios,
                      the health of nodes

Root quotas of profiles follow from nodes alone; they are rendered again and compared, and stand as recorded.

A decision is taken where the recorded one was: on the facts that it was based on, on the report that it names, at its
time. Where the other configuration means something else for a node, the node is also decided in the beginning, at every
report that is kept, and in the end: the manager would have looked at it then, and the recording need not say so.

source    manager spec, 5.1 to 5.7, 6, 4.2; event-bus spec, 6
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, cast

from koordcore.events import CATALOGUE
from koordcore.events.adjustment import NodeHealthAssessed
from koordcore.events.envelope import HEADER_OCCURRED_AT, AggregateRef, BasedOn, Event, StoredEvent
from koordcore.events.mirror import ConfigAccepted, ConfigDeleted
from koordcore.events.nodepolicy import (
    NodeMetricPolicyRendered,
    NodeOvercommitComputed,
    NodeRatiosComputed,
    NodeSloRendered,
)
from koordcore.events.observation import NodeUsageReported
from koordcore.events.quota_profile import QuotaProfileRendered
from koordcore.protocol.objects import Node
from koordcore.state.aggregates import CustomObjectState, NodePolicyState
from koordcore.state.cluster import evolve

from koord_manager.domain.colocation import NodePolicies
from koord_manager.domain.enabled import PLUGINS
from koord_manager.domain.node_drafts import (
    look_at,
    measuring_event,
    normalization_in_force,
    ratio_event,
    slo_event,
)
from koord_manager.domain.node_fates import (
    DECIDED_ANEW,
    Decision,
    NodeFate,
    Rendered,
    is_alike,
    standing,
    without_version,
)
from koord_manager.domain.node_resources.decide import decide_overcommit
from koord_manager.domain.quota_rounds import PROFILES, render
from koord_manager.domain.slo_adjust.rounds import Seen, health_draft, healthy_again, is_adjusted, previous_state
from koord_manager.domain.slo_adjust.step import assess
from koord_manager.domain.view import ManagerView, node_name

_OFF: Final = "off"
MOST_RATIO_ROUNDS: Final = 3
"""Amplification follows a new normalization one round later."""


@dataclass(slots=True)
class Tally:
    """Decisions in the window.

    recorded    that the log has
    anew        that were taken here
    same        recorded ones that were taken here alike
    not_kept    recorded ones whose report is not kept any more
    """

    recorded: int = 0
    anew: int = 0
    same: int = 0
    not_kept: int = 0


@dataclass(slots=True)
class _Reports:
    """The reports that are kept, and how far they have been taken in.

    of          (node token, time of the report) -> the report
    ordered     (when it was told, node token, report)
    newest      node token -> the newest that was taken in
    """

    of: dict[tuple[str, str], NodeUsageReported] = field(default_factory=dict[tuple[str, str], NodeUsageReported])
    ordered: list[tuple[str, str, NodeUsageReported]] = field(default_factory=list[tuple[str, str, NodeUsageReported]])
    newest: dict[str, NodeUsageReported] = field(default_factory=dict[str, NodeUsageReported])
    taken: int = 0


class NodeWhatIf:
    """One run over a view that nobody else uses.

    view      knows which ConfigMap the manager took its configuration from
    chosen    data of the ConfigMap to try; None: that which was in force, whatever it was
    plugins   what the manager computed of a node (`enabled.PLUGINS`)
    anew      node token -> what would be published of it
    tally     of the window
    """

    def __init__(
        self,
        view: ManagerView,
        chosen: Mapping[str, str] | None = None,
        *,
        plugins: frozenset[str] = frozenset(PLUGINS),
    ) -> None:
        self.view = view
        self.anew: dict[str, NodePolicyState] = {}
        self.tally = Tally()
        self._in_force = NodePolicies(plugins=plugins)
        self._in_force.refresh(view)
        self._versions: dict[int, NodePolicies] = {self._in_force.version: self._in_force}
        self._chosen: NodePolicies | None = None
        if chosen is not None:
            self._chosen = NodePolicies(plugins=plugins)
            self._chosen.accept(chosen, 0)
        self._now = ""
        self._reports = _Reports()
        self._points: list[StoredEvent] = []

    def before(self, stored: StoredEvent) -> None:
        """Fold a fact from before the window. Raises UnreadableEvent."""
        self._fold(stored)

    def rerun(
        self,
        events: Sequence[StoredEvent],
        reports: Sequence[StoredEvent] = (),
        progress: Callable[[int], None] | None = None,
        *,
        until: str | None = None,
    ) -> None:
        """Decide the window anew.

        events      what comes after the facts that were folded before, in order
        reports     of the nodes, in order; those that are not kept any more are not known
        progress    called with each position
        until       when the window ends: reports that were told later are not looked at; None: all are
        raises      UnreadableEvent
        """
        begin = self.view.state.position
        self.anew = dict(self.view.state.of_kind(NodePolicyState))
        self._points = sorted(
            (stored for stored in events if _is_decision(stored) and _based_on(stored) >= begin),
            key=lambda stored: (_based_on(stored), stored.seq),
            reverse=True,
        )
        points = frozenset(stored.seq for stored in self._points)
        self._know(reports)
        self._take_in_reports(self._now, looks=False)
        self._look_at_all(self._now)
        for stored in events:
            self._decide_up_to(stored.seq - 1)
            self._take_in_reports(stored.occurred_at, looks=True)
            event = self._fold(stored)
            if event is not None and stored.ref.kind == "nodepolicy" and stored.seq not in points:
                self._stands(stored.ref.id, event, stored)
            if progress is not None:
                progress(stored.seq)
        self._decide_up_to(events[-1].seq if events else begin)
        self._take_in_reports(until, looks=True)
        self._look_at_all(self._now)

    def fates(self) -> list[NodeFate]:
        """Nodes for which something else would stand, by name."""
        recorded = self.view.state.of_kind(NodePolicyState)
        fates = [
            NodeFate(node_name(token), recorded.get(token), self.anew.get(token))
            for token in sorted(recorded.keys() | self.anew.keys())
            if self.view.node(token) is not None
        ]
        return [fate for fate in fates if standing(fate.recorded) != standing(fate.anew)]

    # --- the recording -----------------------------------------------------------------------------------------------

    def _fold(self, stored: StoredEvent) -> Event | None:
        event = self.view.fold(stored)
        self._now = max(self._now, stored.occurred_at)
        if isinstance(event, ConfigAccepted | ConfigDeleted):
            self._in_force = copy.copy(self._in_force)
            self._in_force.refresh(self.view)
            self._versions[self._in_force.version] = self._in_force
        return event

    def _know(self, reports: Sequence[StoredEvent]) -> None:
        for stored in reports:
            report = CATALOGUE.read(stored)
            if isinstance(report, NodeUsageReported):
                self._reports.of[stored.ref.id, report.updated_at] = report
                self._reports.ordered.append((stored.occurred_at, stored.ref.id, report))

    def _take_in_reports(self, until: str | None, *, looks: bool) -> None:
        reports = self._reports
        while reports.taken < len(reports.ordered):
            told_at, token, report = reports.ordered[reports.taken]
            if until is not None and told_at > until:
                return
            reports.taken += 1
            reports.newest[token] = report
            self._now = max(self._now, told_at)
            if looks:
                self._look(token, told_at)

    # --- decisions ---------------------------------------------------------------------------------------------------

    def _decide_up_to(self, position: int) -> None:
        while self._points and _based_on(self._points[-1]) <= position:
            self._take_again(self._points.pop())

    def _take_again(self, stored: StoredEvent) -> None:
        """A recorded decision, taken on what it was taken on."""
        recorded = CATALOGUE.read(stored)
        self.tally.recorded += 1
        if isinstance(recorded, QuotaProfileRendered):
            self._render_quota(stored.ref.id, recorded)
            return
        assert isinstance(recorded, DECIDED_ANEW)
        token, node = stored.ref.id, self.view.node(stored.ref.id)
        if node is None:
            self._stands(token, recorded, stored)
            return
        policies = self._chosen or self._versions.get(recorded.config_version, self._in_force)
        if isinstance(recorded, NodeOvercommitComputed):
            report = self._reports.of.get((token, recorded.metric_updated_at))
            if report is None and recorded.metric_updated_at:
                self.tally.not_kept += 1
                if not self._differs(token):
                    self._stands(token, recorded, stored)
                return
            found = self._overcommit(policies, token, report, stored.occurred_at)
        elif isinstance(recorded, NodeHealthAssessed):
            found = self._health(policies, token, node, recorded)
        else:
            found = self._rendered(type(recorded), policies, token, self.anew.get(token))
        if found is not None:
            self.tally.anew += 1
            self.tally.same += is_alike(found, recorded)
            self._stands(token, found, stored)

    def _health(
        self, policies: NodePolicies, token: str, node: Node, recorded: NodeHealthAssessed
    ) -> NodeHealthAssessed | None:
        """The next step of a node's health on the recorded signals; what the guard said of its weight stands."""
        published = self.anew.get(token)
        if recorded.cause == _OFF:
            before = published.health if published else None
            return healthy_again(before) if before is not None and is_adjusted(before) else None
        policy = policies.slo_adjust
        if not policy.enable:
            return None
        found = assess(policy, previous_state(published), recorded.signals, stale=recorded.stale)
        reported = recorded.reported_weight if found.weight == recorded.weight else found.weight
        seen = Seen(node, published, found, recorded.signals, recorded.stale)
        draft = health_draft(policies, policy, self.view, token, seen, reported)
        return cast("NodeHealthAssessed", draft.event) if draft is not None else None

    def _render_quota(self, id_: str, recorded: QuotaProfileRendered) -> None:
        """The root quota of a profile, which no configuration changes: it is repeated, and stands as recorded."""
        profile = self.view.state.of_kind(CustomObjectState).get(f"{PROFILES}={id_}")
        if profile is not None and profile.object is not None:
            nodes = [node for token in self.view.nodes() if (node := self.view.node(token)) is not None]
            self.tally.anew += 1
            self.tally.same += render(self.view, profile, nodes) == recorded

    def _look_at_all(self, now: str) -> None:
        if self._chosen is None:
            return
        for token in sorted(self.view.nodes()):
            for kind in (NodeRatiosComputed, NodeSloRendered, NodeMetricPolicyRendered):
                chosen, in_force = (
                    without_version(self._rendered(kind, policies, token, None))
                    for policies in (self._chosen, self._in_force)
                )
                if chosen == in_force:
                    continue
                for _ in range(MOST_RATIO_ROUNDS):
                    self._publish(token, self._rendered(kind, self._chosen, token, self.anew.get(token)), now)
            self._look(token, now)

    def _rendered(
        self, kind: type[Rendered], policies: NodePolicies, token: str, published: NodePolicyState | None
    ) -> Rendered | None:
        node = self.view.node(token)
        assert node is not None
        if kind is NodeSloRendered:
            return slo_event(policies, node, published)
        if kind is NodeMetricPolicyRendered:
            return measuring_event(policies, node, published)
        return ratio_event(policies, self.view, token, published)

    def _look(self, token: str, now: str) -> None:
        """What the manager would have looked at: a node that the other configuration treats otherwise."""
        report = self._reports.newest.get(token)
        if self._chosen is not None and report is not None and self._differs(token):
            self._publish(token, self._overcommit(self._chosen, token, report, now), now)

    def _differs(self, token: str) -> bool:
        """Whether the other configuration means something else for what a node lends."""
        node = self.view.node(token)
        if self._chosen is None or node is None:
            return False
        anew, recorded = self.anew.get(token), self.view.policy(token)
        annotations = node.metadata.annotations
        if normalization_in_force(anew, annotations) != normalization_in_force(recorded, annotations):
            return True
        chosen = self._chosen.colocation(token, node, anew.health if anew else None)
        return chosen != self._in_force.colocation(token, node, recorded.health if recorded else None)

    def _overcommit(
        self, policies: NodePolicies, token: str, report: NodeUsageReported | None, now: str
    ) -> NodeOvercommitComputed | None:
        look = look_at(policies, self.view, token, self.anew.get(token), report)
        based_on = BasedOn(ev=self.view.state.position)
        return decide_overcommit(
            look, datetime.fromisoformat(now), config_version=policies.version, based_on=based_on
        ).event

    def _publish(self, token: str, event: Decision | None, now: str) -> None:
        if event is not None:
            self.tally.anew += 1
            stored = StoredEvent(
                self.view.state.position, AggregateRef("nodepolicy", token), {HEADER_OCCURRED_AT: now}, b""
            )
            self._stands(token, event, stored)

    def _stands(self, token: str, event: Event, stored: StoredEvent) -> None:
        state = evolve(self.anew.get(token), event, stored)
        assert isinstance(state, NodePolicyState)
        self.anew[token] = state


def _is_decision(stored: StoredEvent) -> bool:
    return stored.type in {model.__name__ for model in (*DECIDED_ANEW, QuotaProfileRendered)}


def _based_on(stored: StoredEvent) -> int:
    """The position that the recorded decision was taken on: what a node lends is decided slice by slice of a round."""
    event = CATALOGUE.read(stored)
    return event.based_on.ev if isinstance(event, NodeOvercommitComputed) else stored.based_on
