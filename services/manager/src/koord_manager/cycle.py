"""The main loop: every controller reconciles the objects that changed, then agents get their desired states.

All instances fold the log, only the leader decides. A decision is synchronous, so it never sees half of another one.
`domain` makes the decisions. `shell.controllers` takes the keys of changed objects from the work queue.
`shell.reconcile` appends the facts.
"""

import asyncio
from datetime import datetime
from typing import Final, NamedTuple

from koord_manager.domain.cluster.queued_objects import drop_ended_keys
from koord_manager.domain.controller_names import (
    AGENT_EVICTION,
    DUPLICATE_NAME,
    EVICTION,
    EXPLANATION_EXPIRY,
    NODE_OBJECTS,
    RESERVATION_COLLECTION,
    VOLUME_CLAIM,
)
from koord_manager.domain.controllers.agent_evictions import agent_requests
from koord_manager.domain.controllers.registry import Controllers
from koord_manager.domain.controllers.standalone.duplicate_names import duplicate_drafts
from koord_manager.domain.controllers.standalone.ended_objects import collection_drafts, expiry_drafts
from koord_manager.shell import controllers as run
from koord_manager.shell.context import ManagerContext, reason_not_to_decide
from koord_manager.shell.desired_writes import write_desired_states
from koord_manager.shell.reconcile import LogFull, pause_while_full, report_failures


class Controller(NamedTuple):
    """One controller of the manager's cycle."""

    name: str  # Name in logs and metrics for a failure of the whole controller, in contrast to one object's
    # Noun for the cycle's log line, such as `node policies` in "3 node policies"; empty if changes are not logged.
    changes: str
    # Function that decides the objects whose keys are ready in the work queue. It returns the number of changes.
    reconcile: run.Reconcile
    # Queue of a controller that works only without an API server; with one, its keys are dropped. Empty: the controller
    # always works.
    standalone_keys: str = ""


delete_duplicates = run.each_key(DUPLICATE_NAME, duplicate_drafts)
request_evictions = run.each_key(AGENT_EVICTION, agent_requests)
expire_explanations = run.each_key(EXPLANATION_EXPIRY, expiry_drafts)
collect_reservations = run.each_key(RESERVATION_COLLECTION, collection_drafts)
CONTROLLERS: Final = (
    Controller("configuration", "", run.reconcile_configuration),
    Controller("duplicate-names", "objects whose name was taken deleted", delete_duplicates, DUPLICATE_NAME),
    Controller("workloads", "pods of workloads", run.reconcile_workloads),
    Controller("node-policies", "node policies", run.reconcile_node_policies),
    Controller("overcommit", "nodes overcommitted anew", run.reconcile_overcommit),
    Controller("node-objects", "objects reported by nodes", run.reconcile_node_objects, NODE_OBJECTS),
    Controller("health", "nodes with another health", run.reconcile_health),
    Controller("quotaprofile", "root quotas", run.reconcile_quota_profiles),
    Controller("recommender", "recommendations", run.reconcile_recommendations),
    Controller("agent-evictions", "evictions requested by agents", request_evictions),
    Controller("evictions", "", run.reconcile_evictions, EVICTION),
    Controller("explanation-expiry", "", expire_explanations, EXPLANATION_EXPIRY),
    Controller("reservation-collection", "", collect_reservations, RESERVATION_COLLECTION),
    Controller("volume-claims", "claims and volumes", run.bind_claims, VOLUME_CLAIM),
)
"""In the order of the cycle: the configuration, then pods, nodes, and what is computed from them."""


async def run_cycles(context: ManagerContext, controllers: Controllers) -> None:
    """Run a cycle every `control_seconds` of real time while this instance leads.

    Never return; the caller cancels it.
    """
    while True:
        drop_keys_of_gateway(context)
        if context.leadership.term is None:
            drop_ended_keys(context.view.queue, context.view.state, context.view.pods_of_workload)
        if not context.is_importing() and await reason_not_to_decide(context) is None:
            summary = await run_cycle(context, controllers)
            if summary:
                context.logger.info("cycle", changes=summary)
        await asyncio.sleep(context.control_seconds)


def drop_keys_of_gateway(context: ManagerContext) -> None:
    """With an API server, drop the keys of work that it or the gateway does. No-op without one.

    Instances that do not lead drop them, too; there the keys of all pods that ever were would collect.
    """
    if not context.standalone:
        for controller in CONTROLLERS:
            context.view.queue.take(controller.standalone_keys)


async def run_cycle(context: ManagerContext, controllers: Controllers) -> str:
    """Run all controllers once, then write the desired states of nodes, and return a sentence about the changes.

    Controllers whose `changes` is empty are not in the sentence. If no other controller changed anything, it is "".
    """
    # 1. Queue the objects whose back-off or timer is over, next to those that changed.
    now = context.clock.now()
    context.view.queue.begin(now.timestamp())

    # 2. Each controller takes its objects from the queue, decides them, and appends the facts.
    changes: list[str] = []
    for controller in CONTROLLERS:
        count = await _run_controller(context, controllers, controller, now)
        if count and controller.changes:
            changes.append(f"{count} {controller.changes}")

    # 3. Write the desired state of nodes whose pods or policies changed.
    written = await write_desired_states(context, controllers.policies)

    # 4. Report what failed; it stays in the queue and is retried with back-off.
    report_failures(context)

    # 5. Say what changed.
    return ", ".join([*changes, f"{written} desired states written"]) if changes else ""


async def _run_controller(
    context: ManagerContext, controllers: Controllers, controller: Controller, now: datetime
) -> int:
    """Run a controller and return the number of changes; 0 if it failed, waits for its back-off or is idle.

    If the log is full, the controller waits 1, 2, 4 ... `FULL_SECONDS` before it decides again.
    """
    queue = context.view.queue
    is_idle = bool(controller.standalone_keys) and not context.standalone
    if is_idle or queue.is_backing_off(controller.name, ""):
        return 0
    try:
        count = await controller.reconcile(context, controllers, now)
    except LogFull as full:
        pause_while_full(context, controller.name, full)
        return 0
    except Exception as error:  # noqa: BLE001 - reported with its cause; one controller must not stop the others
        queue.fail(controller.name, "", error)
        return 0
    queue.forget(controller.name, "")
    return count
