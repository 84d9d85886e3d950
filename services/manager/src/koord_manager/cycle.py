"""The manager's two loops on one view: documents as they come, and the control round that keeps nodes' policies right.

    documents   take -> decide each against the view -> append -> wait until folded -> answer
    control     workloads -> NodeSLO, ratios, devices -> overcommit -> health -> root quotas
                -> recommendations -> desired state of touched nodes

Both run in one event loop and decide synchronously, so a decision never sees half of another. Only the leader decides;
every instance folds and answers reads.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from koordcore.bus.connection import NoAnswer, NotConnected
from koordcore.bus.desired import BucketRefused
from koordcore.events.adjustment import ConfigWarned
from koordcore.events.envelope import Draft, Origin
from koordcore.ports.clock import Clock
from koordcore.ports.desired import DesiredStore
from koordcore.ports.eventlog import Appended, AppendOutcome, Conflict, EventLog, Full, Unavailable
from koordcore.ports.leadership import Leadership
from koordcore.ports.observations import ObservationLog
from koordcore.protocol.manifests import InvalidManifest, Manifest
from koordcore.protocol.objects import Pod
from koordcore.service.failpoints import failpoint
from koordcore.service.logging import Logger
from koordcore.service.tracing import Tracer
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.quota_evaluation import quota_to_evaluate
from koord_manager.domain.admitting import AdmissionRefused
from koord_manager.domain.agent_evictions import agent_requests, standalone_groups
from koord_manager.domain.applied import Applied
from koord_manager.domain.apply import decide_apply
from koord_manager.domain.colocation import NodePolicies
from koord_manager.domain.config_warnings import warning_drafts
from koord_manager.domain.controllers import Controllers
from koord_manager.domain.desired import desired_node
from koord_manager.domain.node_drafts import (
    device_drafts,
    measuring_drafts,
    overcommit_of,
    ratio_drafts,
    slo_drafts,
)
from koord_manager.domain.recommender.rounds import RecommenderRounds
from koord_manager.domain.remove import Target, decide_delete
from koord_manager.domain.view import ManagerView, node_name
from koord_manager.domain.workloads import reconcile_workload
from koord_manager.shell.appender import Decision, append_decisions
from koord_manager.shell.controller_metrics import ControllerMetrics
from koord_manager.shell.decisions import record_applied, record_refused
from koord_manager.shell.intake import FieldError, Intake, Result, Work, field_errors

MAX_DOCUMENTS = 500
"""Documents decided in one go."""
MAX_PODS_PER_ROUND = 500
"""Pods created or deleted for workloads in one control round."""
DESIRED_WRITES_AT_ONCE = 64
DEFINERS = frozenset(("PriorityClass", "Node", "ConfigMap", "Namespace"))
"""Kinds that documents after them in the same request may refer to."""
REFOLDS = 8
"""Refusals of the log after which a document is answered as failed (event-bus spec, 4.3)."""


@dataclass(slots=True)
class Told:
    """Nodes (tokens) whose desired state this process has written, when all of them were last up to date, and the term
    (its epoch) whose beginning has been folded.
    """

    nodes: set[str] = field(default_factory=set[str])
    flushed_at: float = float("-inf")
    epoch: int = 0


class World(NamedTuple):
    """What the cycle works on and with.

    folded     waits until a position is folded; gives the reason why it will not be, None when it is
    options    gates and flags of admission
    standalone there is no API server: requests to evict are carried out here
    verdicts   where admission's decisions are told; None: nowhere
    metrics    of the control rounds; None: nobody counts
    """

    view: ManagerView
    intake: Intake
    log: EventLog
    desired: DesiredStore
    clock: Clock
    leadership: Leadership
    tracer: Tracer
    logger: Logger
    actor: str
    folded: Callable[[int], Awaitable[str | None]]
    halted: Callable[[], str | None]
    new_uid: Callable[[], str]
    control_seconds: float
    desired_seconds: float
    told: Told
    conflict_pause: Callable[[], float]
    options: Options = Options()
    verdicts: ObservationLog | None = None
    metrics: ControllerMetrics | None = None
    standalone: bool = False


async def why_not_decide(world: World) -> str | None:
    """Why this instance must not decide now; None when it may.

    A new term begins with folding what the log held when it began: names are unique only for who knows all of them.
    """
    term = world.leadership.term
    if term is None:
        return "this instance does not lead; ask the leader"
    halted = world.halted()
    if halted is not None:
        return halted
    if world.told.epoch != term.epoch:
        try:
            head = await world.log.head()
        except (NoAnswer, NotConnected) as error:
            return f"the log is away: {error}"
        halted = await world.folded(head.last_seq)
        if halted is not None:
            return halted
        world.told.epoch = term.epoch
    return None


async def serve_documents(world: World) -> None:
    """Decides documents until the intake is closed and empty: at shutdown everybody who waits gets an answer."""
    while works := await world.intake.take(MAX_DOCUMENTS):
        await process_documents(world, works)


async def process_documents(world: World, works: Sequence[Work]) -> None:
    """One go: every work gets its result. Works on one object are decided in order, each on what the former wrote."""
    reason = await why_not_decide(world)
    if reason is not None:
        for work in works:
            _answer(work, _failed(work, reason))
        return
    waiting = list(works)
    refusals: dict[Work, int] = {}
    while waiting:
        group, waiting = _without_repeats(world, waiting)
        again: list[Work] = []
        for work in await _process_group(world, group):
            refusals[work] = refusals.get(work, 0) + 1
            if refusals[work] < REFOLDS:
                again.append(work)
            else:
                _answer(work, _failed(work, f"refused by the log {REFOLDS} times: somebody else changes this object"))
        if again:
            await asyncio.sleep(world.conflict_pause())  # else two writers in step may refuse each other for ever
        waiting = [*again, *waiting]


def _without_repeats(world: World, works: Sequence[Work]) -> tuple[list[Work], list[Work]]:
    """Works on distinct objects up to where others may depend on what these define, and the rest for the next go."""
    seen: set[tuple[str, ...]] = set()
    first: list[Work] = []
    later: list[Work] = []
    for index, work in enumerate(works):
        if index and works[index - 1].subject.kind in DEFINERS and work.subject.kind != works[index - 1].subject.kind:
            later.extend(works[index:])
            break
        claims = _claims(world, work.subject)
        (later if claims & seen else first).append(work)
        seen |= claims
    return first, later


def _claims(world: World, subject: Manifest | Target) -> set[tuple[str, ...]]:
    """What two works of one go must not share: the object, and the quota that has to have room for a pod."""
    claims: set[tuple[str, ...]] = {_identity(subject)}
    if isinstance(subject, Manifest) and isinstance(subject.object, Pod):
        pod = subject.object
        quota = quota_to_evaluate(pod, None, pod.metadata.namespace, world.view.admission.quotas, world.options)
        if quota is not None:
            claims.add(("quota", quota))
    return claims


def _identity(subject: Manifest | Target) -> tuple[str, str, str]:
    if isinstance(subject, Target):
        return subject.kind, subject.namespace, subject.name
    meta = subject.object.metadata
    return subject.kind, meta.namespace, meta.name


async def _process_group(world: World, works: Sequence[Work]) -> list[Work]:
    """Decides and appends works on distinct objects; returns those whose aggregate moved meanwhile."""
    now = rfc3339(world.clock.now())
    decisions: list[Decision] = []
    results: list[tuple[Work, Result, Applied]] = []
    for work in works:
        # 1. decide
        with world.tracer.span("manager.apply") as span:
            traceparent = span.context.traceparent
            try:
                applied = _decide(world, work, now)
            except InvalidManifest as refused:
                _answer(work, _result(work, "refused", errors=field_errors(refused)))
                if isinstance(refused, AdmissionRefused):
                    await record_refused(world, work, refused.verdict, now, traceparent)
                continue
        action, uid, drafts, refusal, _, _ = applied
        if work.dry_run:
            errors = field_errors(refusal) if refusal else []
            _answer(work, _result(work, "refused" if refusal else action, errors=errors))
            continue
        origin = Origin(
            causation_id=f"{work.request_id}/{work.number}",
            correlation_id=uid or (str(drafts[0].ref) if drafts else ""),
            actor=world.actor,
            epoch=_epoch(world),
            occurred_at=now,
            based_on=world.view.state.position,
            traceparent=traceparent,
        )
        decisions.append(Decision(drafts, origin))
        results.append((work, _result(work, action, uid=uid, traceparent=traceparent), applied))
    # 2. append
    failpoint("documents_decided_before_append")
    outcomes = await append_decisions(world.log, decisions)
    failpoint("documents_appended_before_answer")
    # 3. wait until what is now in the log is folded, so that the next decision and the next read see it
    halted = await world.folded(max((_reached(outcome) for outcome in outcomes), default=0))
    # 4. answer
    again: list[Work] = []
    for (work, result, applied), outcome in zip(results, outcomes, strict=True):
        match outcome:
            case Appended(last_seq=seq):
                errors = field_errors(applied.refusal) if applied.refusal else []
                action = "refused" if applied.refusal else result.action
                _answer(
                    work, _result(work, action, uid=result.uid, seq=seq, traceparent=result.traceparent, errors=errors)
                )
                if applied.steps:
                    await record_applied(world, work, applied, now, result.traceparent)
            case Conflict() if halted is not None:
                _answer(work, _failed(work, halted))
            case Conflict():
                again.append(work)
            case Full(reason=reason) | Unavailable(reason=reason):
                world.logger.error("document_not_stored", kind=result.kind, name=result.name, reason=reason)
                _answer(work, _failed(work, reason))
    return again


def _reached(outcome: AppendOutcome) -> int:
    """The position that an answer of the log tells us of: our own facts, or the one that was in the way."""
    match outcome:
        case Appended(last_seq=seq):
            return seq
        case Conflict(moved=moved):
            return max((seq for _, seq in moved), default=0)
        case _:
            return 0


def _decide(world: World, work: Work, now: str) -> Applied:
    if isinstance(work.subject, Target):
        drafts = decide_delete(world.view, work.subject, world.options)
        return Applied("deleted", "", drafts) if drafts is not None else Applied("not-found", "", [])
    return decide_apply(world.view, work.subject, new_uid=world.new_uid(), now=now, options=world.options)


def _result(
    work: Work,
    action: str,
    *,
    uid: str = "",
    seq: int = 0,
    traceparent: str = "",
    errors: list[FieldError] | None = None,
) -> Result:
    kind, namespace, name = _identity(work.subject)
    return Result(action, kind, namespace, name, uid, seq, traceparent, errors or [])


def _failed(work: Work, reason: str) -> Result:
    return _result(work, "failed", errors=[FieldError("", reason, "")])


def _epoch(world: World) -> int:
    """Fencing number of the present term; 0 when it has just ended (the log's expectations still protect it)."""
    term = world.leadership.term
    return term.epoch if term else 0


def _answer(work: Work, result: Result) -> None:
    if not work.done.done():
        work.done.set_result(result)


async def keep_control(world: World, controllers: Controllers) -> None:
    """Control rounds for ever, `control_seconds` apart in real time; a log line for each that changed something."""
    while True:
        if await why_not_decide(world) is None:
            sentence = await control_round(world, controllers)
            if sentence:
                world.logger.info("control_round", did=sentence)
        await asyncio.sleep(world.control_seconds)


async def control_round(world: World, controllers: Controllers) -> str:
    """One round; returns what it did in a sentence, "" when there was nothing to do."""
    now = world.clock.now()
    view, policies = world.view, controllers.policies
    # 1. configuration: a changed ConfigMap touches every node
    if view.config_touched:
        view.config_touched = False
        policies.refresh(view)
        for touched in (view.touched_nodes, view.touched_inputs, view.touched_desired):
            touched.update(view.nodes())
        await _append_all(world, _warning_drafts(world, policies), now)
    # 2. workloads get the number of pods that they ask for
    changed_pods = await _append_groups(world, _workload_drafts(world, rfc3339(now)), now)
    pods = sum(draft.ref.kind == "podspec" for draft in changed_pods)
    # 3. changed nodes get their NodeSLO, how to measure, their ratios and devices
    changed = sorted(view.touched_nodes)
    view.touched_nodes.clear()
    rendered = 0
    for drafts_for in (slo_drafts, measuring_drafts, ratio_drafts, device_drafts):
        rendered += await _append_all(world, drafts_for(policies, view, changed), now)
    # 4. changed inputs, and reports that grew old, give batch and mid resources anew
    nodes = sorted(view.touched_inputs | policies.overdue(now))
    view.touched_inputs.clear()
    batches = await _append_all(world, _overcommit_drafts(world, policies, nodes, now), now)
    # 5. health lowers weights and water levels; what it touches is rendered in the next round
    assessed = await _append_all(world, controllers.health.drafts(policies, view, now), now)
    if assessed and world.metrics is not None:
        world.metrics.assessed(view)
    # 6. root quotas follow the nodes of their profiles
    quotas = await _append_all(world, controllers.quotas.drafts(view, now), now)
    # 7. each Recommendation says what it recommends; one pod at a time follows it
    recommended = await _append_all(world, _recommender_drafts(world, controllers.recommender, now), now)
    # 8. evictions that agents ask for; without an API server they are carried out here
    evicted = await _append_all(world, agent_requests(view), now)
    if world.standalone:
        await _append_groups(world, standalone_groups(view), now)
    # 9. agents are told
    told = await _write_desired(world, policies)
    did = [
        f"{count} {what}"
        for count, what in (
            (pods, "pods of workloads"),
            (rendered, "node policies"),
            (batches, "nodes overcommitted anew"),
            (assessed, "nodes of another health"),
            (quotas, "root quotas"),
            (recommended, "recommendations"),
            (evicted, "evictions asked for by agents"),
        )
        if count
    ]
    return ", ".join([*did, f"{told} agents told"]) if did else ""


def _recommender_drafts(world: World, rounds: RecommenderRounds, now: datetime) -> list[Draft]:
    if not rounds.is_due(now):
        return []
    began = time.perf_counter()
    drafts = rounds.drafts(world.view, now)
    if world.metrics is not None:
        world.metrics.recommended(rounds, world.view, time.perf_counter() - began)
    return drafts


def _warning_drafts(world: World, policies: NodePolicies) -> list[Draft]:
    drafts = warning_drafts(policies, world.view)
    for draft in drafts:
        if isinstance(draft.event, ConfigWarned):
            for config_field, sentence in draft.event.warnings.items():
                world.logger.warning("config_worth_a_look", field=config_field, reason=sentence)
    return drafts


def _workload_drafts(world: World, now: str) -> list[list[Draft]]:
    view = world.view
    groups: list[list[Draft]] = []
    for uid in sorted(view.touched_workloads):
        room = MAX_PODS_PER_ROUND - sum(map(len, groups))
        if room <= 0:
            break
        try:
            found = reconcile_workload(view, uid, now=now, limit=room, options=world.options)
        except InvalidManifest as refused:
            # looked at again when something changes that admission goes by: a priority class, a profile, a quota
            world.logger.warning("workload_not_admitted", uid=uid, reason=str(refused))
            view.hold_workload(uid)
            continue
        if not found:
            view.touched_workloads.discard(uid)
        groups.extend(found)
    return groups


def _overcommit_drafts(world: World, policies: NodePolicies, nodes: Sequence[str], now: datetime) -> list[Draft]:
    view = world.view
    drafts: list[Draft] = []
    for token in nodes:
        node = view.node(token)
        if node is None:
            continue
        policies.watch_age(token, view.reports.get(token), policies.colocation(token, node))
        found, draft = overcommit_of(policies, view, token, now)
        if world.metrics is not None:
            world.metrics.lent(node.metadata.name, found, now.timestamp())
        if draft is not None:
            drafts.append(draft)
    if world.metrics is not None:
        world.metrics.forget_before(now.timestamp())
    return drafts


async def _append_all(world: World, drafts: Sequence[Draft], now: datetime) -> int:
    """Appends drafts that each stand for themselves; what the log refuses is decided anew in the next round."""
    return len(await _append_groups(world, [[draft] for draft in drafts], now))


async def _append_groups(world: World, groups: Sequence[list[Draft]], now: datetime) -> list[Draft]:
    """Appends groups of drafts, each all or none; those that were stored."""
    if not groups:
        return []
    occurred_at, position = rfc3339(now), world.view.state.position
    decisions: list[Decision] = []
    for group in groups:
        draft = group[0]
        with world.tracer.span(f"manager.{type(draft.event).__name__}") as span:
            origin = Origin(
                causation_id=f"control/{draft.ref}/{draft.expected_last}/{position}",
                correlation_id=draft.ref.id,
                actor=world.actor,
                epoch=_epoch(world),
                occurred_at=occurred_at,
                based_on=position,
                traceparent=span.context.traceparent,
            )
        decisions.append(Decision(group, origin))
    outcomes: list[AppendOutcome] = await append_decisions(world.log, decisions)
    await world.folded(max((_reached(outcome) for outcome in outcomes), default=0))
    stored: list[Draft] = []
    for group, outcome in zip(groups, outcomes, strict=True):
        if world.metrics is not None:
            world.metrics.decided((draft.event for draft in group), stored=isinstance(outcome, Appended))
        if isinstance(outcome, Appended):
            stored += group
            continue
        world.logger.warning("decision_refused", aggregate=str(group[0].ref), outcome=type(outcome).__name__)
        world.view.touched_nodes.add(group[0].ref.id)
        world.view.touched_inputs.add(group[0].ref.id)
    return stored


async def _write_desired(world: World, policies: NodePolicies) -> int:
    """Writes the desired state of touched nodes, a bounded number at once; a failed write is repeated.

    A node's first state is written at once; later ones are gathered for `desired_seconds`, since every change also
    reaches the agent as a push.
    """
    view = world.view
    now = asyncio.get_running_loop().time()
    if now - world.told.flushed_at >= world.desired_seconds:
        world.told.flushed_at = now
        touched = sorted(view.touched_desired)
    else:
        touched = sorted(view.touched_desired - world.told.nodes)
    view.touched_desired.difference_update(touched)
    room = asyncio.Semaphore(DESIRED_WRITES_AT_ONCE)

    async def write(token: str) -> None:
        node = view.node(token)
        async with room:
            try:
                desired = desired_node(view, token, policies.colocation(token, node)) if node else None
                if desired is None:
                    await world.desired.delete(node_name(token))
                    world.told.nodes.discard(token)
                else:
                    await world.desired.put(desired)
                    world.told.nodes.add(token)
            except (NoAnswer, NotConnected, BucketRefused) as error:
                world.logger.warning("desired_not_written", node=token, error=str(error))
                view.touched_desired.add(token)

    await asyncio.gather(*(write(token) for token in touched))
    return len(touched)
