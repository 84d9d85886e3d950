"""Run the controllers: take the keys of changed objects from the work queue, decide, and append the facts."""

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from koordcore.events.envelope import Draft
from koordcore.events.nodepolicy import ConfigWarned
from koordcore.protocol.manifests import InvalidManifest
from koordcore.values.timestamps import rfc3339

from koord_manager.domain import controller_names
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import (
    AGENT_EVICTION,
    CONFIGURATION,
    DESIRED_STATE,
    DISRUPTION_BUDGET,
    EVICTION,
    EXPLANATION_EXPIRY,
    HEALTH,
    HEALTH_RESET,
    NODE_POLICIES,
    OVERCOMMIT,
    QUOTA_PROFILE,
    RECOMMENDER,
    RESERVATION_COLLECTION,
    VOLUME_CLAIM,
    WORKLOAD,
)
from koord_manager.domain.controllers.agent_evictions import agent_requests
from koord_manager.domain.controllers.configuration import NodePolicies, report_expiry, warning_drafts
from koord_manager.domain.controllers.node_policies import (
    device_drafts,
    measuring_drafts,
    overcommit_of,
    ratio_drafts,
    slo_drafts,
)
from koord_manager.domain.controllers.registry import Controllers
from koord_manager.domain.controllers.slo_adjust.facts import reset_drafts
from koord_manager.domain.controllers.standalone.ended_objects import collection_drafts, expiry_drafts
from koord_manager.domain.controllers.standalone.evictions import BlockedByBudget, decide_eviction
from koord_manager.domain.controllers.standalone.node_objects import node_object_drafts
from koord_manager.domain.controllers.standalone.volume_claims import volume_drafts
from koord_manager.domain.controllers.standalone.workload_replicas import reconcile_workload
from koord_manager.shell.context import ManagerContext
from koord_manager.shell.reconcile import Decided, append_decided, reconcile


async def reconcile_configuration(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Put a changed slo-controller-config into force, queue every node, and return the number of appended facts.

    The facts are warnings about the configuration. No-op if the ConfigMap did not change.
    """

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
        return [[draft] for draft in drafts]

    return len(await reconcile(context, CONFIGURATION, context.view.queue.take(CONFIGURATION), decide, now))


MAX_PODS_PER_CYCLE: Final = 500


async def reconcile_workloads(context: ManagerContext, _: Controllers, now: datetime) -> int:
    """Create and delete pods of queued workloads, at most `MAX_PODS_PER_CYCLE`, and return the number of pods."""
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


Drafts = Callable[[NodePolicies, ManagerView, Iterable[str]], list[Draft]]
POLICIES: Final[tuple[tuple[str, str, Drafts], ...]] = (
    (controller_names.NODE_SLO, controller_names.NODE_SLO, slo_drafts),
    (controller_names.NODE_METRIC, controller_names.NODE_METRIC, measuring_drafts),
    (controller_names.NODE_RESOURCE, controller_names.RATIOS, ratio_drafts),
    (controller_names.NODE_RESOURCE, controller_names.DEVICES, device_drafts),
)
"""The controller as the flags name it, its queue, and what it decides for a node; in this order."""


async def reconcile_node_policies(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Publish NodeSLO, metric collection, ratios and devices of queued nodes. Return the number of appended facts.

    The keys of controllers that are switched off are dropped.
    """
    rendered = 0
    for enabled_as, controller, drafts_of in POLICIES:
        tokens = context.view.queue.take(controller)

        def decide(token: str, drafts_of: Drafts = drafts_of) -> list[list[Draft]]:
            return [[draft] for draft in drafts_of(controllers.policies, context.view, [token])]

        if enabled_as in controllers.enabled:
            rendered += len(await reconcile(context, controller, tokens, decide, now))
    return rendered


async def reconcile_overcommit(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Compute batch and mid resources of queued nodes, and of nodes whose usage report became too old.

    Return the number of appended facts.
    """
    view, policies, metrics = context.view, controllers.policies, context.metrics
    tokens = view.queue.take(controller_names.OVERCOMMIT)
    if controller_names.NODE_RESOURCE not in controllers.enabled:
        return 0

    def decide(token: str) -> list[list[Draft]]:
        node = view.node(token)
        if node is None:
            if metrics is not None:
                metrics.not_found()
            return []
        report = view.reports.get(token)
        if report is not None:
            expires = report_expiry(report, policies.colocation(token, node))
            if expires >= now.timestamp():  # after that the report is not used any more
                view.queue.add_after(controller_names.OVERCOMMIT, token, expires)
        found, draft = overcommit_of(policies, view, token, now)
        if metrics is not None:
            metrics.lent(node.metadata.name, found, now.timestamp())
        return [[draft]] if draft is not None else []

    stored = await reconcile(context, controller_names.OVERCOMMIT, tokens, decide, now)
    if tokens and metrics is not None:
        metrics.forget_before(now.timestamp())
    return len(stored)


async def reconcile_node_objects(context: ManagerContext, _: Controllers, now: datetime) -> int:
    """Write the objects that node agents report, and return the number of appended facts.

    Not called with an API server, to which the gateway writes them.
    """
    tokens = context.view.queue.take(controller_names.NODE_OBJECTS)

    def decide(token: str) -> list[list[Draft]]:
        return [[draft] for draft in node_object_drafts(context.view, token, rfc3339(now))]

    return len(await reconcile(context, controller_names.NODE_OBJECTS, tokens, decide, now))


async def reconcile_health(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Reset the health of nodes that returned, assess all nodes if a run is due, and return the number of facts.

    Policies of nodes whose health changed are computed in the next cycle.
    """

    def reset(token: str) -> list[list[Draft]]:
        return [[draft] for draft in reset_drafts(context.view, token)]

    returned = context.view.queue.take(HEALTH_RESET)
    assessed = len(await reconcile(context, HEALTH_RESET, returned, reset, now))
    drafts = controllers.health.drafts(controllers.policies, context.view, now)
    assessed += len(await append_decided(context, HEALTH, _each(drafts), now))
    if assessed and context.metrics is not None:
        context.metrics.assessed(context.view)
    return assessed


async def reconcile_quota_profiles(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Update the root quotas of ElasticQuotaProfiles if a run is due, and return the number of appended facts."""
    if QUOTA_PROFILE not in controllers.enabled:
        context.view.queue.take(QUOTA_PROFILE)
        return 0
    view, quotas = context.view, controllers.quotas

    def decide(id_: str) -> list[list[Draft]]:
        return [[draft] for draft in quotas.decide(view, id_)]

    return len(await reconcile(context, QUOTA_PROFILE, quotas.take(view, now), decide, now))


async def reconcile_recommendations(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Compute every Recommendation if a run is due, and request to evict one outdated pod at a time.

    Return the number of appended facts.
    """
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


async def reconcile_agent_evictions(context: ManagerContext, _: Controllers, now: datetime) -> int:
    """Request the eviction of pods that node agents have ended, and return the number of requests."""

    def decide(token: str) -> list[list[Draft]]:
        return [[draft] for draft in agent_requests(context.view, token)]

    return len(await reconcile(context, AGENT_EVICTION, context.view.queue.take(AGENT_EVICTION), decide, now))


async def reconcile_evictions(context: ManagerContext, controllers: Controllers, now: datetime) -> int:
    """Carry out requested evictions that disruption budgets allow, and return the number of appended facts.

    Not called with an API server, where the gateway carries them out.
    """
    view, queue, budgets = context.view, context.view.queue, controllers.budgets
    budgets.refresh(view, now.timestamp())

    def decide(uid: str) -> list[list[Draft]] | None:
        decision = decide_eviction(view, budgets, uid, now)
        if isinstance(decision, BlockedByBudget):
            queue.add(EVICTION, uid)
            return None
        return [decision] if decision else []

    gone = await reconcile(context, EVICTION, queue.take(EVICTION, MAX_EVICTIONS_PER_CYCLE), decide, now)

    def decide_status(id_: str) -> list[list[Draft]]:
        return [[draft] for draft in budgets.status_draft(view, id_)]

    await reconcile(context, DISRUPTION_BUDGET, queue.take(DISRUPTION_BUDGET), decide_status, now)
    return len(gone)


async def expire_explanations(context: ManagerContext, _: Controllers, now: datetime) -> int:
    """Delete expired ScheduleExplanations, and return their number.

    Not called with an API server, where the gateway deletes them.
    """
    ids = context.view.queue.take(EXPLANATION_EXPIRY)

    def decide(id_: str) -> list[list[Draft]]:
        return [[draft] for draft in expiry_drafts(context.view, id_)]

    return len(await reconcile(context, EXPLANATION_EXPIRY, ids, decide, now))


async def collect_reservations(context: ManagerContext, _: Controllers, now: datetime) -> int:
    """Delete collected Reservations, and return their number.

    Not called with an API server, where the gateway deletes them.
    """
    uids = context.view.queue.take(RESERVATION_COLLECTION)

    def decide(uid: str) -> list[list[Draft]]:
        return [[draft] for draft in collection_drafts(context.view, uid)]

    return len(await reconcile(context, RESERVATION_COLLECTION, uids, decide, now))


async def bind_claims(context: ManagerContext, _: Controllers, now: datetime) -> int:
    """Bind claims to volumes, make volumes, and free those of deleted claims. Return the number of changed objects.

    Not called with an API server, whose controllers do this.
    """
    keys = context.view.queue.take(VOLUME_CLAIM)

    def decide(key: str) -> list[list[Draft]]:
        drafts = volume_drafts(context.view, key, now=rfc3339(now))
        return [drafts] if drafts else []

    return len(await reconcile(context, VOLUME_CLAIM, keys, decide, now))
