"""The effects of a round: evictions of pods as facts, closed nodes, and deletion costs of pods.

Source:
    descheduler spec, 5.1, 6.3
"""

from collections.abc import Container, Iterable, Sequence
from typing import Final

from koordcore.events.descheduling import PodCost, RoundMove
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.migration import MigratedPod, RepackMove, RepackPlanned
from koordcore.protocol import keys
from koordcore.requests.objects import PatchObject

from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.config.effective import profile_args
from koord_descheduler.domain.framework.eviction import INITIATOR, LONGEST_MESSAGE, REASON, Attempt, Result
from koord_descheduler.domain.framework.plugin import Proposal, SetSchedulable
from koord_descheduler.domain.framework.registry import Registry
from koord_descheduler.domain.jobs import plugin
from koord_descheduler.domain.jobs.arguments import MigrationControllerArgs
from koord_descheduler.domain.jobs.plan_steps import repack_ref
from koord_descheduler.domain.view.pods import PodView

STANDS_SECONDS: Final = 60
"""Seconds for which an eviction without a job is tried, for example while a disruption budget refuses it."""


def eviction_draft(move: RoundMove, last_seq: int) -> Draft:
    """Request the eviction of a pod from the gateway. A later round decides again about a pod that stays.

    `last_seq`: sequence of the last event of the pod's eviction; 0 if there was none.
    """
    event = PodEvictionRequested(
        namespace=move.namespace,
        name=move.name,
        node=move.node,
        initiator=INITIATOR,
        method="evict",
        reason=REASON,
        message=f"{move.reason} ({move.plugin})"[:LONGEST_MESSAGE],
        trigger=move.plugin,
        round=move.round,
        profile=move.profile,
        inputs=move.inputs,
        give_up_after_seconds=STANDS_SECONDS,
    )
    return Draft(eviction_ref(move), event, last_seq)


def plan_drafts(attempts: Sequence[Attempt], moves: Iterable[RoundMove]) -> list[Draft]:
    """One fact per plan. They are stored before the jobs are created.

    `attempts` are carried out; they contain all attempts of a plan, or none of them.
    """
    by_pod = {move.uid: move for move in moves if move.plan}
    plans = {each.plan.id: (each.plan, each) for each in attempts if each.plan is not None and each.pod.uid in by_pod}
    targets = {each.pod.uid: each.target for each in attempts}
    return [
        Draft(
            repack_ref(id_),
            RepackPlanned(
                gang=plan.gang,
                members=[_migrated(pod) for pod in plan.members],
                nodes=sorted(plan.nodes),
                moves=[
                    RepackMove(job=by_pod[pod.uid].job, pod=_migrated(pod), source=pod.node, target=targets[pod.uid])
                    for pod in plan.pods
                ],
                gpus=plan.gpus,
                fragment_before=round(plan.fragment_before, 3),
                fragment_after=round(plan.fragment_after, 3),
                reason=plan.reason,
                profile=attempt.profile,
                plugin=attempt.plugin,
                priority=min(pod.object.spec.priority or 0 for pod in plan.members),
                round=by_pod[attempt.pod.uid].round,
            ),
            0,
        )
        for id_, (plan, attempt) in plans.items()
    ]


def _migrated(pod: PodView) -> MigratedPod:
    return MigratedPod(namespace=pod.namespace, name=pod.name, uid=pod.uid)


def eviction_ref(move: RoundMove) -> AggregateRef:
    return AggregateRef("eviction", move.uid)


def is_to_carry_out(attempt: Attempt) -> bool:
    """Whether an attempt succeeded, and was not a dry run."""
    return attempt.result is Result.SUCCESS


def migrating_profiles(
    configuration: DeschedulerConfiguration, registry: Registry
) -> dict[str, MigrationControllerArgs]:
    """Profiles whose pods leave by migration jobs -> arguments of their MigrationController. The others evict directly.

    Raises:
        InvalidInput: The arguments of the MigrationController are invalid.
    """
    return {
        profile.name: profile_args(profile, plugin.NAME, registry)
        for profile in configuration.profiles
        if profile.plugins.evict.enabled[0].name == plugin.NAME
    }


def closed_nodes(proposals: Iterable[Proposal], leaving: Container[str]) -> list[str]:
    """The nodes that a round closes for new pods.

    A node that is closed and opened again in the round stays as it is. A node that no pod leaves is not closed.
    """
    opened: dict[str, bool] = {}
    for each in proposals:
        if isinstance(each, SetSchedulable):
            opened[each.node] = opened.get(each.node, False) or each.schedulable
    return [node for node, is_opened in opened.items() if not is_opened and node in leaving]


def cost_patch(cost: PodCost) -> PatchObject:
    patch = {"metadata": {"annotations": {keys.POD_DELETION_COST: cost.after}}}
    return PatchObject(kind="Pod", namespace=cost.namespace, name=cost.name, uid=cost.uid, patch=patch)
