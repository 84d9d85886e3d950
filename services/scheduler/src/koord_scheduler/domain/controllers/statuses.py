"""What the leader says beside placements: how quotas, gangs and the network stand, what ScheduleExplanations are told,
which pods a quota has to give up, and what controllers of users' plugins want.

One call a round. Quotas, PodGroups and questions are looked at once a second at most, only those that changed; the
network every ten seconds; overuse every revokePodInterval. Each answer becomes a status write, so the log says it once
whoever leads.

source    scheduler-core spec, 3 (controllers), 8.9, 9, 10.8, 10.9, 13.3
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from koordcore.events.envelope import AggregateRef, Event, name_token, namespaced_token
from koordcore.events.objects.gateway import PodEvictionRequested
from koordcore.events.scheduling.quota import QuotaStatusComputed
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339

from koord_scheduler.domain.commit.status_writes import StatusWrite
from koord_scheduler.domain.config.effective import EffectiveConfiguration
from koord_scheduler.domain.controllers.schedule_explanations import explanation_facts
from koord_scheduler.domain.facts.cluster import DEFAULT_TOPOLOGY
from koord_scheduler.domain.gang.phase import is_settled, reconcile
from koord_scheduler.domain.quota.specs.objects import BUILT_IN
from koord_scheduler.domain.quota.specs.text import quantity_text
from koord_scheduler.domain.quota.status.reports import QuotaReports
from koord_scheduler.domain.quota.status.status import QuotaStatus
from koord_scheduler.domain.state.state import SchedulerState
from koord_scheduler.domain.status.published_status import phase_event, topology_event

CONTROLLERS: Final = frozenset({"Coscheduling", "ElasticQuota"})
"""Built-in plugins that run a controller."""
LOOK_SECONDS: Final = 1.0
TOPOLOGY_SECONDS: Final = 10.0
REVOKED: Final = "QuotaOveruse"
_STATUS_FIELDS: Final = tuple(QuotaStatus.__dataclass_fields__)


def chosen_controllers(written: Iterable[str], known: Iterable[str] = CONTROLLERS) -> frozenset[str]:
    """The controllers that run: `*` all, `A,B` these, `*,-A` all but these.

    raises    InvalidInput when a name is empty
    source    scheduler-core spec, 3
    """
    chosen: set[str] = set()
    for name in written:
        if not name.strip("-"):
            raise InvalidInput("a plugin's name, * for all, or -NAME for all but it", name, "controller-plugins")
        if name.startswith("-"):
            chosen.discard(name[1:])
        else:
            chosen |= set(known) if name == "*" else {name}
    return frozenset(chosen & set(known))


def enabled_plugins(configuration: EffectiveConfiguration) -> frozenset[str]:
    """Names of the plugins that run at some point of some profile."""
    return frozenset(name for profile in configuration.profiles for names in profile.points.values() for name in names)


def status_facts(state: SchedulerState, now: float) -> list[StatusWrite]:
    """Everything that is to be said now. What it says counts as said from now on.

    now    unix seconds of the run's clock
    """
    chosen, said = state.settings.controllers, state.status.published
    facts = _controlled(state, now)
    if "ElasticQuota" in chosen:
        _let_expire(state, now)
        if now >= said.next_revoke and state.cluster.quotas.settings.revokes_overuse:
            said.next_revoke = now + state.cluster.quotas.settings.revoke_pod_interval_seconds
            facts += _revocations(state, now)
    if now < said.next_look:
        return facts
    said.next_look = now + LOOK_SECONDS
    if "ElasticQuota" in chosen and state.status.quota_changes:
        facts += _quota_statuses(state)
    if "Coscheduling" in chosen:
        facts += _gang_phases(state, now)
    facts += _cluster_topology(state, now)
    facts += [_notice(state, ref, event) for ref, event in explanation_facts(state, now)]
    return facts


def _controlled(state: SchedulerState, now: float) -> list[StatusWrite]:
    """What the controllers of plugins want whose turn it is."""
    status_writes: list[StatusWrite] = []
    for key, plugin in state.frameworks.controllers.items():
        if plugin.name in state.settings.controllers and now >= state.status.published.next_control.get(key, 0.0):
            state.status.published.next_control[key] = now + max(plugin.control_seconds, LOOK_SECONDS)
            for eviction in plugin.control(now):
                pod = state.pods.get(eviction.uid)
                if pod is None or not (pod.node or pod.bound_node):
                    continue
                status_writes += _eviction(state, eviction.uid, plugin.name, eviction.message)
    return status_writes


def next_status_due(state: SchedulerState) -> float | None:
    """When `status_facts` will have something to look at; None: not before another event."""
    chosen, quotas = state.settings.controllers, state.cluster.quotas
    dues: list[float] = []
    if "ElasticQuota" in chosen:
        if quotas.settings.revokes_overuse:
            dues.append(state.status.published.next_revoke)
        expiry = quotas.next_expiry()
        if expiry is not None:
            dues.append(expiry)
        if state.status.quota_changes:
            dues.append(state.status.published.next_look)
    if "Coscheduling" in chosen and state.cluster.gangs.roster.touched:
        dues.append(state.status.published.next_look)
    dues += [
        state.status.published.next_control.get(key, 0.0)
        for key, plugin in state.frameworks.controllers.items()
        if plugin.name in chosen
    ]
    if _owes_topology(state):
        dues.append(state.status.published.next_topology)
    explanations = state.status.explanations.next_due(state.status.published.next_look)
    if explanations is not None:
        dues.append(explanations)
    return min(dues, default=None)


def _let_expire(state: SchedulerState, now: float) -> None:
    expiry = state.cluster.quotas.next_expiry()
    if expiry is not None and expiry <= now and state.cluster.quotas.expire(now):
        state.cluster.quotas.moves += 1


def _quota_statuses(state: SchedulerState) -> list[StatusWrite]:
    reports = QuotaReports(state.cluster.quotas)
    status_writes: list[StatusWrite] = []
    for name in state.status.quota_changes.take():
        status = reports.status_of(name)
        ref = AggregateRef("quota", name_token(name))
        if not _is_object(state, name, status.namespace):
            continue
        event = QuotaStatusComputed(**{field: getattr(status, field) for field in _STATUS_FIELDS})
        if state.status.published.quotas.get(name) != event:
            state.status.published.quotas[name] = event
            status_writes.append(_notice(state, ref, event))
    return status_writes


def _is_object(state: SchedulerState, name: str, namespace: str) -> bool:
    """Whether somebody wrote the quota; the built-in ones are there without."""
    return name not in BUILT_IN or f"elasticquotas={namespaced_token(namespace, name)}" in state.mirror.objects


def _gang_phases(state: SchedulerState, now: float) -> list[StatusWrite]:
    roster = state.cluster.gangs.roster
    touched, roster.touched = roster.touched, {}
    moment = datetime.fromtimestamp(now, UTC)
    status_writes: list[StatusWrite] = []
    for gang_id in touched:
        gang = roster.gang(gang_id)
        if gang is None or gang.group is None or gang.parameters is None:
            continue
        if gang.group.binding or _is_in_round(state, gang_id):
            # Its placements are on their way, with a fact about the same aggregate: the log would refuse one of them.
            roster.touched[gang_id] = None
            continue
        created_at = _moment(gang.created_at, moment)
        if is_settled(gang.status, gang.parameters.min_members, created_at, moment):
            continue
        before = gang.status
        while reconcile(gang, rfc3339(moment)) is not None:
            pass
        if gang.status != before:
            event = phase_event(gang)
            ref = AggregateRef("gang", namespaced_token(event.namespace, event.name))
            status_writes.append(_notice(state, ref, event))
    return status_writes


def _is_in_round(state: SchedulerState, gang_id: str) -> bool:
    current = state.cluster.gangs.round
    return current is not None and gang_id in current.gang_ids


def _owes_topology(state: SchedulerState) -> bool:
    """Whether the network may have other domains than was said."""
    topology, settings = state.cluster.topology, state.settings
    is_wanted = settings.tells_topology or (
        state.cluster.gangs.args.is_topology_aware and "Coscheduling" in settings.controllers
    )
    if topology is None or not is_wanted:
        return False
    return state.status.published.topology is None or state.status.published.topology_seen != (topology, topology.moves)


def _cluster_topology(state: SchedulerState, now: float) -> list[StatusWrite]:
    """How the nodes span the network, when that has changed. source    scheduler-core spec, 9"""
    topology, said = state.cluster.topology, state.status.published
    ref = AggregateRef("clustertopology", DEFAULT_TOPOLOGY)
    if topology is None or now < said.next_topology or not _owes_topology(state):
        return []
    said.next_topology = now + TOPOLOGY_SECONDS
    said.topology_seen = (topology, topology.moves)
    event = topology_event(topology)
    if event == said.topology:
        return []
    said.topology = event
    return [_notice(state, ref, event)]


def _revocations(state: SchedulerState, now: float) -> list[StatusWrite]:
    quotas = state.cluster.quotas
    status_writes: list[StatusWrite] = []
    for name, uids in quotas.revoke(now).items():
        used, runtime = quotas.forest.nodes[name].used, quotas.runtime_of(name)
        over = ", ".join(
            f"{resource} {quantity_text(resource, used.get(resource, 0))} of {quantity_text(resource, limit)}"
            for resource, limit in sorted(runtime.items())
            if used.get(resource, 0) > limit
        )
        for uid in uids:
            status_writes += _eviction(state, uid, REVOKED, f"quota {name} uses more than its runtime: {over}")
    return status_writes


def _eviction(state: SchedulerState, uid: str, reason: str, message: str) -> list[StatusWrite]:
    """A pod is asked to leave; nothing for one that has been asked, or is not there."""
    pod = state.pods.get(uid)
    if pod is None or uid in state.nominator.evictions:
        return []
    event = PodEvictionRequested(
        namespace=pod.namespace,
        name=pod.name,
        node=pod.node or pod.bound_node,
        initiator="scheduler",
        method="evict",
        reason=reason,
        message=message,
    )
    state.nominator.evictions[uid] = reason
    return [_notice(state, AggregateRef("eviction", uid), event)]


def _notice(state: SchedulerState, ref: AggregateRef, event: Event) -> StatusWrite:
    """Caused by all that is folded: which fact it was cannot be told."""
    return StatusWrite(facts=((ref, event),), trigger=f"{ref}/{state.log.position}")


def _moment(text: str, otherwise: datetime) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return otherwise
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
