"""The manager's control round: what is asked for and what is measured becomes policy of nodes, quotas, recommendations.

Runs in one event loop with `documents` and decides synchronously, so a decision never sees half of another. Only the
leader decides; every instance folds. What each step decides is in `domain`; `recording` appends it. A step, or an
object in it, that fails is told and tried again later; the others go on (`domain.isolation`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial

from koordcore.events.envelope import Draft, name_token
from koordcore.events.management.adjustment import ConfigWarned
from koordcore.protocol.manifests import InvalidManifest
from koordcore.state.aggregates import WorkloadState
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.cluster.view import ManagerView, node_name
from koord_manager.domain.configuration.warnings import warning_drafts
from koord_manager.domain.controllers import Controllers
from koord_manager.domain.enabled import NODE_METRIC, NODE_RESOURCE, NODE_SLO, QUOTA_PROFILE
from koord_manager.domain.nodes.policy_drafts import (
    device_drafts,
    measuring_drafts,
    overcommit_of,
    ratio_drafts,
    slo_drafts,
)
from koord_manager.domain.pod_evictions.agent_requests import agent_requests
from koord_manager.domain.pod_evictions.execution import eviction_groups
from koord_manager.domain.standalone.explanation_expiry import expiry_drafts
from koord_manager.domain.standalone.workload_replicas import reconcile_workload
from koord_manager.shell.append_decisions import append_all, append_groups, write_desired
from koord_manager.shell.context import ManagerContext, reason_not_to_decide

MAX_PODS_PER_ROUND = 500
"""Pods created or deleted for workloads in one control round."""
NODES_AT_ONCE = 20
"""Nodes decided without letting others in: some milliseconds."""
NODE_STEPS = (
    (NODE_SLO, NODE_SLO, slo_drafts),
    (NODE_METRIC, NODE_METRIC, measuring_drafts),
    (NODE_RESOURCE, "ratios", ratio_drafts),
    (NODE_RESOURCE, "devices", device_drafts),
)
"""What is rendered for a changed node: the controller, what it is called when it fails, how; in this order."""
OVERCOMMIT = "overcommit"
WORKLOAD = "workload"


async def in_slices(nodes: Sequence[str], decide: Callable[[Sequence[str]], list[Draft]]) -> list[Draft]:
    """What is decided of many nodes, others being let in between: admission answers while a cluster is recomputed.

    Facts folded meanwhile touch their nodes again, and nobody else writes their policies: nothing is decided stale.
    """
    drafts: list[Draft] = []
    for begin in range(0, len(nodes), NODES_AT_ONCE):
        if begin:
            await asyncio.sleep(0)
        drafts += decide(nodes[begin : begin + NODES_AT_ONCE])
    return drafts


async def run_cycles(context: ManagerContext, controllers: Controllers) -> None:
    """Control rounds for ever, `control_seconds` apart in real time; a log line for each that changed something."""
    while True:
        if await reason_not_to_decide(context) is None:
            sentence = await run_cycle(context, controllers)
            if sentence:
                context.logger.info("run_cycle", did=sentence)
        await asyncio.sleep(context.control_seconds)


async def run_cycle(context: ManagerContext, controllers: Controllers) -> str:
    """One round; returns what it did in a sentence, "" when there was nothing to do."""
    now = context.clock.now()
    controllers.isolation.begin(now.timestamp())
    did: list[str] = []
    for name, what, step in STEPS:
        count = await _step(context, controllers, name, step, now)
        if count and what:
            did.append(f"{count} {what}")
    told = await write_desired(context, controllers.policies, controllers.isolation)
    _tell_failures(context, controllers)
    return ", ".join([*did, f"{told} agents told"]) if did else ""


Step = Callable[[ManagerContext, Controllers, datetime], Awaitable[int]]


async def _step(context: ManagerContext, controllers: Controllers, name: str, step: Step, now: datetime) -> int:
    """How much a step did; 0 when it failed, or failed not long ago. Facts that it appended before stand."""
    if controllers.isolation.is_held(name, ""):
        return 0
    try:
        count = await step(context, controllers, now)
    except Exception as error:  # noqa: BLE001 - told with its cause; one controller must not end the others
        controllers.isolation.failed(name, "", error)
        return 0
    controllers.isolation.mended(name, "")
    return count


def _tell_failures(context: ManagerContext, controllers: Controllers) -> None:
    failures = controllers.isolation.take_failures()
    for failure in failures:
        if failure.is_news:
            context.logger.error(
                "decision_failed",
                controller=failure.controller,
                object=failure.name or "(the whole step)",
                error=f"{type(failure.error).__name__}: {failure.error}",
                times=failure.times,
                again_in_seconds=failure.delay_seconds,
                exc_info=failure.error,
            )
    if context.metrics is not None:
        context.metrics.failed(failures, controllers.isolation.failing())


async def _configuration(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """A changed ConfigMap touches every node."""
    view, policies = context.view, controllers.policies
    if not view.config_touched:
        return 0
    policies.refresh(view)
    view.config_touched = False
    for touched in (view.touched_nodes, view.touched_inputs, view.touched_desired):
        touched.update(view.nodes())
    drafts = warning_drafts(policies, view)
    for draft in drafts:
        if isinstance(draft.event, ConfigWarned):
            for config_field, sentence in draft.event.warnings.items():
                context.logger.warning("config_worth_a_look", field=config_field, reason=sentence)
    try:
        return await append_all(context, controllers.isolation, drafts, now)
    except BaseException:
        view.config_touched = True
        raise


async def _workloads(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Workloads get the number of pods that they ask for; with an API server its controllers see to that."""
    if not context.standalone:
        return 0
    changed = await append_groups(
        context, controllers.isolation, _workload_groups(context, controllers, rfc3339(now)), now
    )
    return sum(draft.ref.kind == "podspec" for draft in changed)


def _workload_groups(context: ManagerContext, controllers: Controllers, now: str) -> list[list[Draft]]:
    view, isolation = context.view, controllers.isolation
    groups: list[list[Draft]] = []
    for uid in sorted(view.touched_workloads):
        room = MAX_PODS_PER_ROUND - sum(map(len, groups))
        if room <= 0:
            break
        name = _called(view, uid)
        if isolation.is_held(WORKLOAD, name):
            continue
        try:
            found = reconcile_workload(view, uid, now=now, limit=room, options=context.options)
        except InvalidManifest as refused:
            # looked at again when something changes that admission goes by: a priority class, a profile, a quota
            context.logger.warning("workload_not_admitted", uid=uid, reason=str(refused))
            view.hold_workload(uid)
            continue
        except Exception as error:  # noqa: BLE001 - told with its cause; it stays touched and is tried again
            isolation.failed(WORKLOAD, name, error)
            continue
        isolation.mended(WORKLOAD, name)
        if not found:
            view.touched_workloads.discard(uid)
        groups.extend(found)
    return groups


def _called(view: ManagerView, uid: str) -> str:
    state = view.state.of_kind(WorkloadState).get(uid)
    meta = state.object.metadata if state else None
    return f"{meta.namespace}/{meta.name} ({uid})" if meta else uid


async def _nodes(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Changed nodes get their NodeSLO, how to measure, their ratios and devices."""
    view, policies, attempt = context.view, controllers.policies, controllers.isolation.attempt
    view.touched_nodes.update(map(name_token, controllers.isolation.due(*(what for _, what, _ in NODE_STEPS))))
    changed = sorted(view.touched_nodes)
    view.touched_nodes.clear()
    rendered = 0
    try:
        for controller, what, drafts_for in NODE_STEPS:
            if controller not in controllers.enabled:
                continue

            def decide(some: Sequence[str], what: str = what, drafts_for: NodeDrafts = drafts_for) -> list[Draft]:
                found = (attempt(what, node_name(one), partial(drafts_for, policies, view, [one])) for one in some)
                return [draft for drafts in found for draft in drafts or ()]

            rendered += await append_all(context, controllers.isolation, await in_slices(changed, decide), now)
    except BaseException:
        view.touched_nodes.update(changed)
        raise
    return rendered


async def _overcommit(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Changed inputs, and reports that grew old, give batch and mid resources anew."""
    view = context.view
    view.touched_inputs |= controllers.policies.overdue(now)
    view.touched_inputs.update(map(name_token, controllers.isolation.due(OVERCOMMIT)))
    nodes = sorted(view.touched_inputs)
    view.touched_inputs.clear()
    if NODE_RESOURCE not in controllers.enabled:
        return 0

    def decide(some: Sequence[str]) -> list[Draft]:
        attempt = controllers.isolation.attempt
        found = (
            attempt(OVERCOMMIT, node_name(one), partial(_overcommit_draft, context, controllers, one, now))
            for one in some
        )
        return [draft for draft in found if draft is not None]

    try:
        count = await append_all(context, controllers.isolation, await in_slices(nodes, decide), now)
    except BaseException:
        view.touched_inputs.update(nodes)
        raise
    if nodes and context.metrics is not None:
        context.metrics.forget_before(now.timestamp())
    return count


def _overcommit_draft(context: ManagerContext, controllers: Controllers, token: str, now: datetime) -> Draft | None:
    view, policies = context.view, controllers.policies
    node = view.node(token)
    if node is None:
        if context.metrics is not None:
            context.metrics.not_found()
        return None
    policies.watch_age(token, view.reports.get(token), policies.colocation(token, node))
    found, draft = overcommit_of(policies, view, token, now)
    if context.metrics is not None:
        context.metrics.lent(node.metadata.name, found, now.timestamp())
    return draft


async def _health(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Health lowers weights and water levels; what it touches is rendered in the next round."""
    drafts = controllers.health.drafts(controllers.policies, context.view, now, controllers.isolation.attempt)
    assessed = await append_all(context, controllers.isolation, drafts, now)
    if assessed and context.metrics is not None:
        context.metrics.assessed(context.view)
    return assessed


async def _quotas(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Root quotas follow the nodes of their profiles."""
    if QUOTA_PROFILE not in controllers.enabled:
        return 0
    return await append_all(
        context, controllers.isolation, controllers.quotas.drafts(context.view, now, controllers.isolation.attempt), now
    )


async def _recommendations(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Each Recommendation says what it recommends; one pod at a time follows it."""
    rounds = controllers.recommender
    if not rounds.is_due(now):
        return 0
    began = time.perf_counter()
    drafts = rounds.drafts(context.view, now, controllers.isolation.attempt)
    if context.metrics is not None:
        context.metrics.recommended(rounds, context.view, time.perf_counter() - began)
    return await append_all(context, controllers.isolation, drafts, now)


async def _asked_evictions(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Evictions that agents ask for."""
    return await append_all(context, controllers.isolation, agent_requests(context.view), now)


async def _evictions(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Without an API server evictions are carried out here, and not while the budgets cannot be worked out."""
    if not context.standalone:
        return 0
    controllers.budgets.refresh(context.view, now.timestamp())
    gone = await append_groups(
        context, controllers.isolation, eviction_groups(context.view, controllers.budgets, now), now
    )
    await append_all(context, controllers.isolation, controllers.budgets.status_drafts(context.view), now)
    return len(gone)


async def _expired_explanations(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Without an API server, explanations whose time is over are deleted here."""
    if not context.standalone:
        return 0
    return await append_all(context, controllers.isolation, expiry_drafts(context.view), now)


NodeDrafts = Callable[..., list[Draft]]
STEPS: tuple[tuple[str, str, Step], ...] = (
    ("configuration", "", _configuration),
    ("workloads", "pods of workloads", _workloads),
    ("nodes", "node policies", _nodes),
    ("overcommit", "nodes overcommitted anew", _overcommit),
    ("health", "nodes of another health", _health),
    ("quotaprofile", "root quotas", _quotas),
    ("recommender", "recommendations", _recommendations),
    ("agent-evictions", "evictions asked for by agents", _asked_evictions),
    ("evictions", "", _evictions),
    ("expired-explanations", "", _expired_explanations),
)
"""Name, what it is called in the log ("": it is not told), and the step; in this order."""
