"""Run the controllers: take the keys of changed objects from the work queue, decide, and append the facts."""

import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Final

from koordcore.events.envelope import Draft
from koordcore.events.nodepolicy import ConfigWarned
from koordcore.protocol.manifests import InvalidManifest
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import (
    CONFIGURATION,
    DESIRED_STATE,
    DISRUPTION_BUDGET,
    EVICTION,
    HEALTH,
    HEALTH_RESET,
    NODE_OBJECTS,
    NODE_POLICIES,
    OVERCOMMIT,
    QUOTA_PROFILE,
    RECOMMENDER,
    VOLUME_CLAIM,
    WORKLOAD,
)
from koord_manager.domain.controllers.configuration import present_inputs, report_expiry, warning_drafts
from koord_manager.domain.controllers.node_policies import OVERCOMMITTED, RENDERED, NodeDecision, node_drafts
from koord_manager.domain.controllers.node_resources.decide import overcommit
from koord_manager.domain.controllers.registry import Controllers
from koord_manager.domain.controllers.slo_adjust.facts import reset_drafts
from koord_manager.domain.controllers.standalone.evictions import BlockedByBudget, decide_eviction
from koord_manager.domain.controllers.standalone.node_objects import node_object_drafts
from koord_manager.domain.controllers.standalone.volume_claims import volume_drafts
from koord_manager.domain.controllers.standalone.workload_replicas import reconcile_workload
from koord_manager.shell.context import ManagerContext
from koord_manager.shell.reconcile import Decided, append_decided, reconcile

Reconcile = Callable[[ManagerContext, Controllers, datetime], Awaitable[int]]
"""Decides the objects whose keys are ready in the work queue, and returns the number of changes."""


def singly(drafts: list[Draft]) -> list[list[Draft]]:
    """Facts that are appended independently of each other."""
    return [[draft] for draft in drafts]


def each_key(queue: str, decide: Callable[[ManagerView, str], list[Draft]]) -> Reconcile:
    """Decide each key of one queue from the view alone. The changes are the appended facts."""

    async def run(context: ManagerContext, _: Controllers, now: datetime) -> int:
        keys = context.view.queue.take(queue)
        return len(await reconcile(context, queue, keys, lambda key: singly(decide(context.view, key)), now))

    return run


async def reconcile_node_objects(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Write the objects that node agents report. With an API server, the gateway writes them."""
    return await each_key(NODE_OBJECTS, partial(node_object_drafts, now=rfc3339(now)))(context, controllers, now)


async def reconcile_configuration(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Put a changed slo-controller-config into force, queue every node, and record warnings about it."""

    def decide(_: str) -> list[list[Draft]]:
        view, policies = context.view, controllers.policies
        policies.refresh(view)
        for controller in (*NODE_POLICIES, OVERCOMMIT, DESIRED_STATE):
            view.queue.add_all(controller, view.nodes())
        drafts = warning_drafts(policies, view)
        for draft in drafts:
            if isinstance(draft.event, ConfigWarned):
                for config_field, sentence in draft.event.warnings.items():
                    context.logger.warning("config_warning", field=config_field, reason=sentence)
        return singly(drafts)

    return len(await reconcile(context, CONFIGURATION, context.view.queue.take(CONFIGURATION), decide, now))


MAX_PODS_PER_CYCLE: Final = 500


async def reconcile_workloads(context: ManagerContext, _: Controllers, now: datetime) -> int:
    """Create and delete pods of queued workloads, at most `MAX_PODS_PER_CYCLE`."""
    view, queue = context.view, context.view.queue
    room = MAX_PODS_PER_CYCLE

    def decide(uid: str) -> list[list[Draft]] | None:
        nonlocal room
        if room <= 0:
            queue.add(WORKLOAD, uid)
            return None
        try:
            groups = reconcile_workload(view, uid, now=rfc3339(now), limit=room, options=context.options)
        except InvalidManifest as refused:
            # retried with back-off, and at once if a profile, quota, priority class or namespace changes
            if queue.add_rate_limited(WORKLOAD, uid)[2]:
                context.logger.warning("workload_not_admitted", uid=uid, reason=str(refused))
            return None
        if groups:
            room -= sum(map(len, groups))
            queue.add(WORKLOAD, uid)  # pods may be missing still
        return groups

    stored = await reconcile(context, WORKLOAD, queue.take(WORKLOAD), decide, now)
    return sum(draft.ref.kind == "podspec" for draft in stored)


async def reconcile_node_policies(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Publish NodeSLO, metric collection, ratios and devices of queued nodes. Drop keys of controllers that are off."""
    view, policies = context.view, controllers.policies
    rendered = 0
    for decision in RENDERED:
        tokens = view.queue.take(decision.queue)

        def decide(token: str, decision: NodeDecision = decision) -> list[list[Draft]]:
            at = present_inputs(policies, view, token, now)
            return singly(node_drafts(at, at and decision.decide(at)))

        if decision.enabled_as in controllers.enabled:
            rendered += len(await reconcile(context, decision.queue, tokens, decide, now))
    return rendered


async def reconcile_overcommit(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Compute batch and mid resources of queued nodes, and of nodes whose usage report became too old."""
    view, policies, metrics = context.view, controllers.policies, context.metrics
    tokens = view.queue.take(OVERCOMMIT)
    if OVERCOMMITTED.enabled_as not in controllers.enabled:
        return 0

    def decide(token: str) -> list[list[Draft]]:
        at = present_inputs(policies, view, token, now)
        if at is None:
            if metrics is not None:
                metrics.not_found()
            return []
        if at.report is not None:
            expires = report_expiry(at.report, policies.colocation(token, at.node))
            if expires >= now.timestamp():  # after that the report is not used any more
                view.queue.add_after(OVERCOMMIT, token, expires)
        found = overcommit(at)
        if metrics is not None:
            metrics.lent(at.node.metadata.name, found, now.timestamp())
        return singly(node_drafts(at, found.event))

    stored = await reconcile(context, OVERCOMMIT, tokens, decide, now)
    if tokens and metrics is not None:
        metrics.forget_before(now.timestamp())
    return len(stored)


async def reconcile_health(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Reset the health of nodes that returned, and assess all nodes if a run is due.

    Policies of nodes whose health changed are computed in the next cycle.
    """
    assessed = await each_key(HEALTH_RESET, reset_drafts)(context, controllers, now)
    drafts = controllers.health.drafts(controllers.policies, context.view, now)
    assessed += len(await append_decided(context, HEALTH, _each(drafts), now))
    if assessed and context.metrics is not None:
        context.metrics.assessed(context.view)
    return assessed


async def reconcile_quota_profiles(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Update the root quotas of ElasticQuotaProfiles if a run is due."""
    if QUOTA_PROFILE not in controllers.enabled:
        context.view.queue.take(QUOTA_PROFILE)
        return 0
    view, quotas = context.view, controllers.quotas

    def decide(id_: str) -> list[list[Draft]]:
        return singly(quotas.decide(view, id_))

    return len(await reconcile(context, QUOTA_PROFILE, quotas.take(view, now), decide, now))


async def reconcile_recommendations(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Compute every Recommendation if a run is due, and request to evict one outdated pod at a time."""
    recommender = controllers.recommender
    if not recommender.is_due(now):
        return 0
    began = time.perf_counter()
    drafts = recommender.drafts(context.view, now)
    if context.metrics is not None:
        context.metrics.recommended(recommender, context.view, time.perf_counter() - began)
    return len(await append_decided(context, RECOMMENDER, _each(drafts), now))


def _each(drafts: list[Draft]) -> list[Decided]:
    return [Decided(draft.ref.id, [draft]) for draft in drafts]


MAX_EVICTIONS_PER_CYCLE: Final = 200


async def reconcile_evictions(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Carry out requested evictions that disruption budgets allow. With an API server, the gateway does it."""
    view, queue, budgets = context.view, context.view.queue, controllers.budgets
    budgets.refresh(view, now.timestamp())

    def decide(uid: str) -> list[list[Draft]] | None:
        decision = decide_eviction(view, budgets, uid, now)
        if isinstance(decision, BlockedByBudget):
            queue.add(EVICTION, uid)
            return None
        return [decision] if decision else []

    gone = await reconcile(context, EVICTION, queue.take(EVICTION, MAX_EVICTIONS_PER_CYCLE), decide, now)
    await each_key(DISRUPTION_BUDGET, budgets.status_draft)(context, controllers, now)
    return len(gone)


async def bind_claims(context: ManagerContext, _: Controllers, now: datetime) -> int:
    """Bind claims, make volumes, and free those of deleted claims. An API server has controllers for this."""
    keys = context.view.queue.take(VOLUME_CLAIM)

    def decide(key: str) -> list[list[Draft]]:
        drafts = volume_drafts(context.view, key, now=rfc3339(now))
        return [drafts] if drafts else []

    return len(await reconcile(context, VOLUME_CLAIM, keys, decide, now))
