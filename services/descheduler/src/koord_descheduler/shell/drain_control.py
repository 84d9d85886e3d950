"""Look at all drains every few seconds, on the leader: carry out what a look decides, then record it.

A round with the plugin Drain wants a look at once.

    look ─► changes of objects, by the manager ─► one fact per drain

Effects are carried out before the fact is written. They have fixed names, so a look that is repeated after a kill
changes nothing twice. In the other order, a kill after the fact would lose the effects.

Source:
    descheduler spec, 11
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final

from koordcore.events import CATALOGUE
from koordcore.events.drain import DrainConfirmed, DrainForgotten, DrainGroupChanged, DrainGroupForgotten
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, name_from_token, name_token
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import Appended, Conflict, EventLog, Unsendable
from koordcore.ports.leadership import Term
from koordcore.protocol.drains import CordonMode, CordonPolicy, DrainNode, DrainNodeGroup, DrainNodeSpec
from koordcore.protocol.objects import ObjectMeta
from koordcore.requests.objects import ChangeOutcome, ChangeResult, CreateObject, DeleteObject, ObjectChange
from koordcore.service.telemetry.logging import Logger
from koordcore.state.drains import DrainGroupState, DrainState
from koordcore.values.invalid import InvalidInput
from koordcore.values.newest import Newest
from koordcore.values.timestamps import rfc3339

from koord_descheduler.domain.drain import viewing
from koord_descheduler.domain.drain.changes import change_of
from koord_descheduler.domain.drain.group_drain import (
    ABORTED,
    PLANNING,
    GroupLook,
    GroupView,
    drain_name,
    first_group,
    look_at_group,
    recorded,
    taken_back,
)
from koord_descheduler.domain.drain.group_drain import FINAL as FINAL_GROUPS
from koord_descheduler.domain.drain.node_drain import LOOK_INTERVAL, DrainStep, DrainView, is_garbage, look
from koord_descheduler.domain.drain.policy import DrainPolicy
from koord_descheduler.domain.drain.progress import DrainPhase, PodProgress, event_of, progress_of, without_refused
from koord_descheduler.domain.jobs.effects import Refusals
from koord_descheduler.domain.view.building import ViewBuilder
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView
from koord_descheduler.shell.folding import views_are_current
from koord_descheduler.shell.leading import Leading
from koord_descheduler.shell.object_writer import NotWritten, ObjectWriter
from koord_descheduler.shell.waiting import Problem, first_of

_MOST_WAITS: Final = 1024


@dataclass(slots=True, kw_only=True)
class DrainControl:
    """Leads drains of nodes and of groups to their end.

    Attributes:
        builder: The folded cluster.
        leading: Whether this instance may decide.
        log: The log.
        clock: Clock of the run.
        logger: Logger of the service.
        actor: Name of this instance in the facts that it writes.
        writer: Changes objects.
        make_policy: Makes the policy when the first term begins. It raises InvalidInput while it cannot be made, for
            example because a PriorityClass does not exist; then all drains wait.
        wanted: Is set if a look is wanted before the next one is due.
    """

    builder: ViewBuilder
    leading: Leading
    log: EventLog
    clock: Clock
    logger: Logger
    actor: str
    writer: ObjectWriter
    make_policy: Callable[[], DrainPolicy]
    wanted: asyncio.Event
    _refused: Refusals = field(default_factory=Refusals, init=False)
    """Kind and name of an object that could not be created, or the deletion of a DrainNode that was refused."""
    _waits: Newest[AggregateRef, str] = field(
        default_factory=lambda: Newest[AggregateRef, str](_MOST_WAITS), init=False
    )
    """Drain or group -> why its last look failed, which is logged once."""
    _without_policy: Problem = field(init=False)

    def __post_init__(self) -> None:
        self._without_policy = Problem("drains_wait", self.logger)

    async def run(self) -> None:
        """Look at all drains every few seconds while this instance leads. Runs until it is cancelled."""
        policy: DrainPolicy | None = None
        while True:
            term = await self.leading.term()
            self.wanted.clear()
            policy = policy or self._policy()
            if policy is not None:
                await self.look_at_all(policy, term)
            await first_of(self.clock.sleep(LOOK_INTERVAL), self.wanted.wait())

    def _policy(self) -> DrainPolicy | None:
        """Return the policy; None if it cannot be made now. The reason is logged when it changes."""
        try:
            return self.make_policy()
        except InvalidInput as error:
            self._without_policy.lasts(str(error))
            return None

    async def look_at_all(self, policy: DrainPolicy, term: Term) -> None:
        """Look at every drain and every group once, and let other tasks run in between.

        An error in one drain does not delay the others.
        """
        await views_are_current(self.builder)
        state, now = self.builder.state, self.clock.now().timestamp()
        self._refused.forget_old(now)
        found, of_groups = viewing.drains(self.builder), viewing.groups(self.builder)
        of_node = viewing.drains_by_node(state, found.values())
        look = _LookOptions(policy, now, term, self._refusals(policy, now), found, of_node)
        for token, facts in list(state.of_kind(DrainState).items()):
            name = name_from_token(token)
            if facts.object_uid and (name not in found or found[name].metadata.uid != facts.object_uid):
                found.pop(name, None)  # a new object of the name waits until the old one is taken back
                await self._guarded(_drain_ref(name), self._forget(name, facts, look))
        for name, drain in found.items():
            await self._guarded(_drain_ref(name), self._look(drain, look))
            await asyncio.sleep(0)  # drains that have ended are looked at, too, and there may be one for each node
        for token, facts in list(state.of_kind(DrainGroupState).items()):
            name = name_from_token(token)
            if facts.object_uid and (name not in of_groups or of_groups[name].metadata.uid != facts.object_uid):
                of_groups.pop(name, None)
                await self._guarded(_group_ref(name), self._forget_group(name, facts, look))
        first = first_group(state, of_groups.values())
        for name, group in of_groups.items():
            await self._guarded(_group_ref(name), self._look_at_group(group, look, is_first=name == first))

    async def _guarded(self, ref: AggregateRef, looking: Coroutine[Any, Any, None]) -> None:
        try:
            await looking
        except (NotWritten, InvalidInput) as error:
            if self._waits.get(ref) != str(error):
                self._waits[ref] = str(error)
                self.logger.warning("drain_waits", aggregate=str(ref), reason=str(error))
        else:
            self._waits.pop(ref, None)

    def _refusals(self, policy: DrainPolicy, now: float) -> viewing.Refusals:
        """Return the rule about pods. The view of the cluster is made when the rule is first asked."""
        views: list[ClusterView] = []

        def refusals(pod: PodView) -> tuple[str, ...]:
            if not views:
                views.append(self.builder.view(now))
            return policy.refusals(pod, views[0])

        return refusals

    async def _look(self, drain: DrainNode, options: "_LookOptions") -> None:
        """Look at one drain, carry out the effects, and record the new progress."""
        view = viewing.drain_view(
            self.builder,
            drain,
            of_node=options.of_node.get(drain.spec.node_name, ()),
            now=options.now,
            refusals=options.refusals,
            scheduler_names=options.policy.scheduler_names,
        )
        facts = viewing.state_of(self.builder.state, drain)
        before = progress_of(facts)
        if is_garbage(view, before):
            await self._delete(drain, options)
            return
        step = look(view, before)
        now = rfc3339(self.clock.now())

        def explain(pod: PodProgress) -> str:
            return viewing.explanation(view, pod)

        event = event_of(drain, facts, step.progress, now=now, explain=explain)
        if step.effects and not isinstance(event, DrainConfirmed):
            refused = await self._carry_out(drain, step, view, options)
            if refused:
                progress = without_refused(drain.metadata.name, before, step.progress, refused)
                event = event_of(drain, facts, progress, now=now, explain=explain)
        if event is not None:
            await self._record(_drain_ref(drain.metadata.name), drain.metadata.uid, event, options.term)

    async def _delete(self, drain: DrainNode, options: "_LookOptions") -> None:
        """Delete a drain that nobody needs any more. No-op if that was refused a short time ago.

        No-op also if the drain is being deleted: then others have to remove its finalizers.
        """
        change = DeleteObject(kind="DrainNode", name=drain.metadata.name, uid=drain.metadata.uid)
        if drain.metadata.deletion_timestamp is not None or self._refused.waits(change, options.now):
            return
        outcomes = await self._changed([change], options.term)
        if self._refused.pause_after(change, outcomes, options.now) is not None:
            self.logger.error("drain_change_refused", drain=drain.metadata.name, reason=outcomes[0].message)

    async def _carry_out(
        self, drain: DrainNode, step: DrainStep, view: DrainView, options: "_LookOptions"
    ) -> frozenset[str]:
        """Carry out the effects of a look. Return the names of the objects whose creation was refused.

        A creation that was refused a short time ago is not tried, and counts as refused.
        """
        pods = {pod.uid: pod for pod in view.pods}
        changes: list[ObjectChange] = []
        refused: set[str] = set()
        for effect in step.effects:
            change = change_of(effect, drain, pods, now=options.now, job_ttl=options.policy.job_ttl)
            if isinstance(change, CreateObject) and self._refused.waits(_created(change), options.now):
                refused.add(_created(change)[1])
            elif change is not None:
                changes.append(change)
        for change, outcome in zip(changes, await self._changed(changes, options.term), strict=True):
            if outcome.result is ChangeResult.REFUSED:
                self.logger.error("drain_change_refused", drain=drain.metadata.name, reason=outcome.message)
            if isinstance(change, CreateObject):
                created = _created(change)
                if self._refused.pause_after(created, [outcome], options.now) is not None:
                    refused.add(created[1])
        return frozenset(refused)

    async def _changed(self, changes: Sequence[ObjectChange], term: Term) -> list[ChangeOutcome]:
        """Change objects if this instance still leads.

        Raises:
            NotWritten: It does not lead any more, or the manager does not answer.
        """
        if self.leading.is_over(term):
            raise NotWritten("this instance does not lead any more")
        return await self.writer.change(changes) if changes else []

    async def _forget(self, name: str, facts: DrainState, options: "_LookOptions") -> None:
        """Undo the drain of a deleted DrainNode. If the drain has ended already, only drop its state.

        The state is kept while a group plans this drain: the group reads there that the drain was taken back.
        """
        if facts.phase in (DrainPhase.COMPLETE, DrainPhase.ABORTED):
            if name in self._planned():
                return
            await self._record(_drain_ref(name), facts.object_uid, DrainForgotten(), options.term)
            return
        policy = CordonPolicy(mode=CordonMode(facts.mode or CordonMode.TAINT), labels=facts.labels)
        gone = ObjectMeta(name=name, uid=facts.object_uid, deletion_timestamp=rfc3339(self.clock.now()))
        await self._look(DrainNode(gone, DrainNodeSpec(node_name=facts.node, cordon_policy=policy)), options)

    def _planned(self) -> set[str]:
        """Return the names of the DrainNodes whose nodes the groups plan now."""
        groups = self.builder.state.of_kind(DrainGroupState).items()
        return {
            drain_name(name_from_token(token), group.planning) for token, group in groups if group.phase == PLANNING
        }

    async def _look_at_group(self, group: DrainNodeGroup, options: "_LookOptions", *, is_first: bool) -> None:
        state = self.builder.state
        facts = viewing.group_state_of(state, group)
        if facts is not None and facts.phase in FINAL_GROUPS:
            return
        view = GroupView(
            group=group,
            cluster=self.builder.view(options.now),
            reservations=list(viewing.available_reservations(state)),
        )
        of_drains = {name_from_token(token): drain for token, drain in state.of_kind(DrainState).items()}
        step = look_at_group(
            GroupLook(view=view, state=facts, drains=of_drains, existing=options.existing, is_first=is_first)
        )
        event = recorded(step, group.metadata.name, await self._changed(step.changes, options.term))
        if event is not None:
            await self._record(_group_ref(group.metadata.name), group.metadata.uid, event, options.term)

    async def _forget_group(self, name: str, facts: DrainGroupState, options: "_LookOptions") -> None:
        """Undo the drains of a deleted DrainNodeGroup. If the group has ended already, only drop its state."""
        ref = _group_ref(name)
        if facts.phase in FINAL_GROUPS:
            await self._record(ref, facts.object_uid, DrainGroupForgotten(), options.term)
            return
        of_drains = {name_from_token(token): drain for token, drain in self.builder.state.of_kind(DrainState).items()}
        await self._changed(taken_back(name, facts, of_drains, options.existing), options.term)
        event = DrainGroupChanged(object_uid=facts.object_uid, phase=ABORTED, message="the object was deleted")
        await self._record(ref, facts.object_uid, event, options.term)

    async def _record(self, ref: AggregateRef, correlation: str, event: Event, term: Term) -> None:
        """Append a fact if this instance still leads, and wait until it is folded.

        Raises:
            NotWritten: The log does not store it: it is full, does not answer, or the fact is too large.
        """
        if self.leading.is_over(term):
            return
        last, position = self.builder.state.last_seq(ref), self.builder.state.position
        origin = Origin(
            causation_id=f"{ref}/{last}/{position}",
            correlation_id=correlation,
            actor=self.actor,
            epoch=term.epoch,
            occurred_at=rfc3339(self.clock.now()),
            based_on=position,
        )
        try:
            outcome = await self.log.append(CATALOGUE.seal([Draft(ref, event, last)], origin))
        except Unsendable as error:  # of this drain only; the others go on
            raise NotWritten(f"{type(event).__name__} cannot be recorded: {error}") from error
        match outcome:
            case Appended(last_seq=seq):
                self.logger.info("drain_step", aggregate=str(ref), step=type(event).__name__)
                await self.leading.folded(seq)
            case Conflict():
                self.logger.warning("drain_not_recorded", aggregate=str(ref), outcome=str(outcome))
            case _:
                raise NotWritten(f"{type(event).__name__} is not recorded: {outcome.reason}")


@dataclass(frozen=True, slots=True)
class _LookOptions:
    """Inputs that all drains of one pass share.

    Attributes:
        policy: The policy.
        now: Unix seconds.
        term: The term of this leader.
        refusals: The rule about pods.
        existing: Name -> DrainNode that exists.
        of_node: Node -> names as tokens of all its drains.
    """

    policy: DrainPolicy
    now: float
    term: Term
    refusals: viewing.Refusals
    existing: Mapping[str, DrainNode]
    of_node: Mapping[str, Set[str]]


def _drain_ref(name: str) -> AggregateRef:
    """Return the aggregate of a DrainNode."""
    return AggregateRef("drain", name_token(name))


def _group_ref(name: str) -> AggregateRef:
    """Return the aggregate of a DrainNodeGroup."""
    return AggregateRef("draingroup", name_token(name))


def _created(change: CreateObject) -> tuple[str, str]:
    """Return kind and name of the object that a change creates."""
    return str(change.document["kind"]), str(change.document["metadata"]["name"])
