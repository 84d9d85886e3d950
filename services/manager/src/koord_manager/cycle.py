"""The manager's control round: what is asked for and what is measured becomes policy of nodes, quotas, recommendations.

Runs in one event loop with `documents` and decides synchronously, so a decision never sees half of another. Only the
leader decides; every instance folds. What each step decides is in `domain`; `recording` appends it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from koordcore.events.adjustment import ConfigWarned
from koordcore.events.envelope import Draft
from koordcore.protocol.manifests import InvalidManifest
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.agent_evictions import agent_requests
from koord_manager.domain.colocation import NodePolicies
from koord_manager.domain.config_warnings import warning_drafts
from koord_manager.domain.controllers import Controllers
from koord_manager.domain.enabled import NODE_METRIC, NODE_RESOURCE, NODE_SLO, QUOTA_PROFILE
from koord_manager.domain.evictions import eviction_groups
from koord_manager.domain.expired_explanations import expiry_drafts
from koord_manager.domain.node_drafts import (
    device_drafts,
    measuring_drafts,
    overcommit_of,
    ratio_drafts,
    slo_drafts,
)
from koord_manager.domain.recommender.rounds import RecommenderRounds
from koord_manager.domain.workloads import reconcile_workload
from koord_manager.recording import append_all, append_groups, write_desired
from koord_manager.world import World, why_not_decide

MAX_PODS_PER_ROUND = 500
"""Pods created or deleted for workloads in one control round."""
NODES_AT_ONCE = 20
"""Nodes decided without letting others in: some milliseconds."""
NODE_STEPS = (
    (NODE_SLO, slo_drafts),
    (NODE_METRIC, measuring_drafts),
    (NODE_RESOURCE, ratio_drafts),
    (NODE_RESOURCE, device_drafts),
)
"""What is rendered for a changed node, each by its controller, in this order."""


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
        await append_all(world, _warning_drafts(world, policies), now)
    # 2. workloads get the number of pods that they ask for; with an API server its controllers see to that
    pods = 0
    if world.standalone:
        changed_pods = await append_groups(world, _workload_drafts(world, rfc3339(now)), now)
        pods = sum(draft.ref.kind == "podspec" for draft in changed_pods)
    # 3. changed nodes get their NodeSLO, how to measure, their ratios and devices
    changed = sorted(view.touched_nodes)
    view.touched_nodes.clear()
    rendered = 0
    for controller, drafts_for in NODE_STEPS:
        if controller in controllers.enabled:
            drafts = await in_slices(changed, lambda some, decide=drafts_for: decide(policies, view, some))
            rendered += await append_all(world, drafts, now)
    # 4. changed inputs, and reports that grew old, give batch and mid resources anew
    nodes = sorted(view.touched_inputs | policies.overdue(now))
    view.touched_inputs.clear()
    batches = 0
    if NODE_RESOURCE in controllers.enabled:
        drafts = await in_slices(nodes, lambda some: _overcommit_drafts(world, policies, some, now))
        batches = await append_all(world, drafts, now)
        if nodes and world.metrics is not None:
            world.metrics.forget_before(now.timestamp())
    # 5. health lowers weights and water levels; what it touches is rendered in the next round
    assessed = await append_all(world, controllers.health.drafts(policies, view, now), now)
    if assessed and world.metrics is not None:
        world.metrics.assessed(view)
    # 6. root quotas follow the nodes of their profiles
    quotas = 0
    if QUOTA_PROFILE in controllers.enabled:
        quotas = await append_all(world, controllers.quotas.drafts(view, now), now)
    # 7. each Recommendation says what it recommends; one pod at a time follows it
    recommended = await append_all(world, _recommender_drafts(world, controllers.recommender, now), now)
    # 8. evictions that agents ask for; without an API server they are carried out here
    evicted = await append_all(world, agent_requests(view), now)
    if world.standalone:
        controllers.budgets.refresh(view, now.timestamp())
        await append_groups(world, eviction_groups(view, controllers.budgets, now), now)
        await append_all(world, controllers.budgets.status_drafts(view), now)
        await append_all(world, expiry_drafts(view), now)
    # 9. agents are told
    told = await write_desired(world, policies)
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
    return drafts
