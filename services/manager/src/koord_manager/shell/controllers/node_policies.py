"""The node policy controllers: NodeSLO, metric collection, ratios, devices, and overcommitted resources."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from koordcore.events.envelope import Draft
from koordcore.values.timestamps import rfc3339

from koord_manager.domain import controller_names
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.configuration.node_policies import NodePolicies, report_expiry
from koord_manager.domain.controllers import Controllers
from koord_manager.domain.nodes.policy_drafts import (
    device_drafts,
    measuring_drafts,
    overcommit_of,
    ratio_drafts,
    slo_drafts,
)
from koord_manager.domain.standalone.node_objects import node_object_drafts
from koord_manager.shell.context import ManagerContext
from koord_manager.shell.reconcile import reconcile

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
