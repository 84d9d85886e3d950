"""The eviction controllers: requests of node agents, and, without an API server, the execution of evictions."""

from datetime import datetime
from typing import Final

from koordcore.events.envelope import Draft

from koord_manager.domain.controller_names import (
    AGENT_EVICTION,
    DISRUPTION_BUDGET,
    EVICTION,
    EXPLANATION_EXPIRY,
    RESERVATION_COLLECTION,
)
from koord_manager.domain.controllers import Controllers
from koord_manager.domain.pod_evictions.agent_requests import agent_requests
from koord_manager.domain.pod_evictions.execution import BlockedByBudget, decide_eviction
from koord_manager.domain.standalone.explanation_expiry import expiry_drafts
from koord_manager.domain.standalone.reservation_collection import collection_drafts
from koord_manager.shell.context import ManagerContext
from koord_manager.shell.reconcile import reconcile

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
