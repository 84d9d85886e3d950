"""The periodic controllers: node health, root quotas, recommendations; each handles all objects at an interval."""

import time
from datetime import datetime

from koordcore.events.envelope import Draft

from koord_manager.domain.controller_names import HEALTH, HEALTH_RESET, QUOTA_PROFILE, RECOMMENDER
from koord_manager.domain.controllers import Controllers
from koord_manager.domain.slo_adjust.facts import reset_drafts
from koord_manager.shell.context import ManagerContext
from koord_manager.shell.reconcile import Decided, append_decided, reconcile


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
