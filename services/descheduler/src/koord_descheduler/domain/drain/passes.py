"""Decide one pass over all drains and groups of drains: the changes of objects, and the fact that follows.

The service makes the changes of a look first, then it stores the fact. Changes have fixed names, so a look that is
repeated after a kill changes nothing twice. In the other order, a kill after the fact would lose the changes.

Source:
    descheduler spec, 11
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from koordcore.events.drain import DrainConfirmed, DrainForgotten, DrainGroupChanged, DrainGroupForgotten
from koordcore.events.envelope import AggregateRef, Event, name_from_token, name_token
from koordcore.protocol.drains import CordonMode, CordonPolicy, DrainNode, DrainNodeGroup, DrainNodeSpec
from koordcore.protocol.objects import ObjectMeta
from koordcore.requests.objects import ChangeOutcome, CreateObject, DeleteObject, ObjectChange
from koordcore.state.drains import DrainGroupState, DrainState
from koordcore.values.timestamps import rfc3339

from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.drain import viewing
from koord_descheduler.domain.drain.changes import change_of
from koord_descheduler.domain.drain.group_drain import (
    ABORTED,
    PLANNING,
    GroupLook,
    GroupStep,
    GroupView,
    drain_name,
    first_group,
    look_at_group,
    recorded,
    taken_back,
)
from koord_descheduler.domain.drain.group_drain import FINAL as FINAL_GROUPS
from koord_descheduler.domain.drain.node_drain import is_garbage, look
from koord_descheduler.domain.drain.progress import (
    DrainPhase,
    DrainProgress,
    PodProgress,
    event_of,
    progress_of,
    without_refused,
)
from koord_descheduler.domain.framework.registry import Registry, SharedState
from koord_descheduler.domain.jobs.controller import arguments_of_jobs
from koord_descheduler.domain.jobs.effects import Refusals
from koord_descheduler.domain.jobs.plugin import MigrationController
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView

PodRule = Callable[[PodView, ClusterView], tuple[str, ...]]
"""Returns why a pod must not be migrated; empty if it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPolicy:
    refusals: PodRule  # Returns the reasons why a pod must not be migrated, by base filter and expected replicas
    scheduler_names: frozenset[str]  # Schedulers that know Reservations
    job_ttl: float  # Seconds after which a migration job is given up; 0: never


def drain_policy(configuration: DeschedulerConfiguration, registry: Registry, shared: SharedState) -> DrainPolicy:
    """The policy of the first profile that evicts by migration jobs, else the default one.

    The PriorityClasses of `shared` are read.

    Raises:
        InvalidInput: The arguments of the MigrationController are invalid.
    """
    args = arguments_of_jobs(configuration, registry)
    controller = MigrationController(args, shared)
    return DrainPolicy(
        refusals=controller.lasting_refusals,
        scheduler_names=frozenset(args.scheduler_names),
        job_ttl=args.default_job_ttl,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainPass:
    """What all looks of one pass share."""

    builder: ViewBuilder
    policy: DrainPolicy
    refused: Refusals  # kind and name of an object that could not be created, or the deletion of a DrainNode
    now: float  # Unix seconds
    drains: dict[str, DrainNode]  # name -> DrainNode that exists, oldest first
    groups: dict[str, DrainNodeGroup]  # the same of groups
    of_node: Mapping[str, Set[str]]  # node -> names as tokens of all its drains
    refusals: viewing.Refusals

    @property
    def at(self) -> str:
        return rfc3339(datetime.fromtimestamp(self.now, UTC))


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a drain or a group decides."""

    ref: AggregateRef
    object_uid: str
    changes: Sequence[ObjectChange]
    concluded: Callable[[Sequence[ChangeOutcome]], Event | None]
    """Takes one outcome per change, and returns the fact to store; None: there is nothing to record."""


def begin(builder: ViewBuilder, policy: DrainPolicy, refused: Refusals, now: float) -> DrainPass:
    """Begin a pass. Refused changes that nobody has tried again for long are forgotten."""
    refused.forget_old(now)
    found = viewing.drains(builder)
    return DrainPass(
        builder=builder,
        policy=policy,
        refused=refused,
        now=now,
        drains=found,
        groups=viewing.groups(builder),
        of_node=viewing.drains_by_node(builder.state, found.values()),
        refusals=_refusals(builder, policy, now),
    )


def _refusals(builder: ViewBuilder, policy: DrainPolicy, now: float) -> viewing.Refusals:
    """The view of the cluster is made when the rule is first asked."""
    views: list[ClusterView] = []

    def refusals(pod: PodView) -> tuple[str, ...]:
        if not views:
            views.append(builder.view(now))
        return policy.refusals(pod, views[0])

    return refusals


def looks(given: DrainPass) -> Iterator[tuple[AggregateRef, Callable[[], Look]]]:
    """Yield the looks of a pass one after the other. Each one sees the facts of those before it.

    First the drains of deleted DrainNodes are taken back. Meanwhile, a new object of the same name waits for the next
    pass. Groups come after drains.
    """
    state = given.builder.state
    for token, facts in list(state.of_kind(DrainState).items()):
        name = name_from_token(token)
        if _is_gone(facts.object_uid, given.drains.get(name)):
            given.drains.pop(name, None)
            yield drain_ref(name), partial(_forget_drain, name, facts, given)
    for name, drain in given.drains.items():
        yield drain_ref(name), partial(look_at_drain, drain, given)
    for token, facts in list(state.of_kind(DrainGroupState).items()):
        name = name_from_token(token)
        if _is_gone(facts.object_uid, given.groups.get(name)):
            given.groups.pop(name, None)
            yield group_ref(name), partial(_forget_group, name, facts, given)
    first = first_group(state, given.groups.values())
    for name, group in given.groups.items():
        yield group_ref(name), partial(_look_at_group, group, given, is_first=name == first)


def _is_gone(uid: str, existing: DrainNode | DrainNodeGroup | None) -> bool:
    """Whether the object of a drain with facts is deleted. Facts without a uid are about no object."""
    return bool(uid) and (existing is None or existing.metadata.uid != uid)


def drain_ref(name: str) -> AggregateRef:
    return AggregateRef("drain", name_token(name))


def group_ref(name: str) -> AggregateRef:
    return AggregateRef("draingroup", name_token(name))


def look_at_drain(drain: DrainNode, given: DrainPass) -> Look:
    """A drain that nobody needs any more is deleted."""
    view = viewing.drain_view(
        given.builder,
        drain,
        of_node=given.of_node.get(drain.spec.node_name, ()),
        now=given.now,
        refusals=given.refusals,
        scheduler_names=given.policy.scheduler_names,
    )
    facts = viewing.state_of(given.builder.state, drain)
    before = progress_of(facts)
    if is_garbage(view, before):
        return _deletion(drain, given)
    step = look(view, before)

    def event_after(progress: DrainProgress) -> Event | None:
        def explain(pod: PodProgress) -> str:
            return viewing.explanation(view, pod)

        return event_of(drain, facts, progress, now=given.at, explain=explain)

    event, changes, waiting = event_after(step.progress), list[ObjectChange](), set[str]()
    if not isinstance(event, DrainConfirmed):
        pods = {pod.uid: pod for pod in view.pods}
        for effect in step.effects:
            change = change_of(effect, drain, pods, now=given.now, job_ttl=given.policy.job_ttl)
            if isinstance(change, CreateObject) and given.refused.waits(_created(change), given.now):
                waiting.add(_created(change)[1])
            elif change is not None:
                changes.append(change)

    def concluded(outcomes: Sequence[ChangeOutcome]) -> Event | None:
        refused = waiting | _refused_creations(changes, outcomes, given)
        return event_after(without_refused(drain.metadata.name, before, step.progress, refused)) if refused else event

    return Look(drain_ref(drain.metadata.name), drain.metadata.uid, changes, concluded)


def _deletion(drain: DrainNode, given: DrainPass) -> Look:
    """Delete a drain. No-op if that was refused a short time ago, or if others have to remove its finalizers."""
    change = DeleteObject(kind="DrainNode", name=drain.metadata.name, uid=drain.metadata.uid)
    waits = drain.metadata.deletion_timestamp is not None or given.refused.waits(change, given.now)

    def concluded(outcomes: Sequence[ChangeOutcome]) -> None:
        if not waits:
            given.refused.pause_after(change, outcomes, given.now)

    return Look(drain_ref(drain.metadata.name), drain.metadata.uid, [] if waits else [change], concluded)


def _refused_creations(
    changes: Iterable[ObjectChange], outcomes: Iterable[ChangeOutcome], given: DrainPass
) -> set[str]:
    """Return the names of the objects whose creation was refused. They are not tried again for a while."""
    return {
        _created(change)[1]
        for change, outcome in zip(changes, outcomes, strict=True)
        if isinstance(change, CreateObject)
        and given.refused.pause_after(_created(change), [outcome], given.now) is not None
    }


def _created(change: CreateObject) -> tuple[str, str]:
    return str(change.document["kind"]), str(change.document["metadata"]["name"])


def _forget_drain(name: str, facts: DrainState, given: DrainPass) -> Look:
    """Undo the drain of a deleted DrainNode. If the drain has ended already, only drop its state.

    The state is kept while a group plans this drain: the group reads there that the drain was taken back.
    """
    if facts.phase in (DrainPhase.COMPLETE, DrainPhase.ABORTED):
        groups = given.builder.state.of_kind(DrainGroupState).items()
        planned = (
            drain_name(name_from_token(token), each.planning) for token, each in groups if each.phase == PLANNING
        )
        event = None if name in planned else DrainForgotten()
        return Look(drain_ref(name), facts.object_uid, [], lambda _: event)
    policy = CordonPolicy(mode=CordonMode(facts.mode or CordonMode.TAINT), labels=facts.labels)
    gone = ObjectMeta(name=name, uid=facts.object_uid, deletion_timestamp=given.at)
    return look_at_drain(DrainNode(gone, DrainNodeSpec(node_name=facts.node, cordon_policy=policy)), given)


def _look_at_group(group: DrainNodeGroup, given: DrainPass, *, is_first: bool) -> Look:
    name, state = group.metadata.name, given.builder.state
    facts = viewing.group_state_of(state, group)
    step = GroupStep()
    if facts is None or facts.phase not in FINAL_GROUPS:
        view = GroupView(
            group=group,
            cluster=given.builder.view(given.now),
            reservations=list(viewing.available_reservations(state)),
        )
        step = look_at_group(
            GroupLook(view=view, state=facts, drains=_by_name(given), existing=given.drains, is_first=is_first)
        )
    return Look(group_ref(name), group.metadata.uid, step.changes, lambda outcomes: recorded(step, name, outcomes))


def _forget_group(name: str, facts: DrainGroupState, given: DrainPass) -> Look:
    """Undo the drains of a deleted DrainNodeGroup. If the group has ended already, only drop its state."""
    uid, changes, event = facts.object_uid, list[ObjectChange](), DrainGroupForgotten()
    if facts.phase not in FINAL_GROUPS:
        changes = taken_back(name, facts, _by_name(given), given.drains)
        event = DrainGroupChanged(object_uid=uid, phase=ABORTED, message="the object was deleted")
    return Look(group_ref(name), uid, changes, lambda _: event)


def _by_name(given: DrainPass) -> dict[str, DrainState]:
    drains = given.builder.state.of_kind(DrainState)
    return {name_from_token(token): drain for token, drain in drains.items()}
