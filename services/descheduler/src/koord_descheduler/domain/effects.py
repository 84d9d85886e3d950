"""The effects of a round: evictions of pods as facts, and changes of nodes and pods.

Source:
    descheduler spec, 5.1, 6.3
"""

from collections.abc import Container, Iterable
from typing import Final

from koordcore.events.descheduling.decisions import RoundMove
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects.gateway import PodEvictionRequested
from koordcore.protocol import keys
from koordcore.requests.objects import ChangeNode, ObjectChange, PatchObject

from koord_descheduler.domain.arguments.migration_controller import MigrationControllerArgs
from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.config.effective import profile_args
from koord_descheduler.domain.framework.eviction import Attempt, Result
from koord_descheduler.domain.framework.proposals import Proposal, SetSchedulable
from koord_descheduler.domain.framework.registry import Registry
from koord_descheduler.domain.plugins.evictors import migration_controller
from koord_descheduler.domain.view.cluster import ClusterView

INITIATOR: Final = "descheduler"
REASON: Final = "Descheduled"
LONGEST_MESSAGE: Final = 1024


def eviction_draft(move: RoundMove, last_seq: int) -> Draft:
    """Return the fact that asks the gateway to evict a pod.

    Args:
        move: The pod, as a round chose it.
        last_seq: Sequence of the last event of the pod's eviction; 0 if there was none.
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
    )
    return Draft(eviction_ref(move), event, last_seq)


def eviction_ref(move: RoundMove) -> AggregateRef:
    """Return the aggregate of the eviction of a pod."""
    return AggregateRef("eviction", move.uid)


def is_to_carry_out(attempt: Attempt) -> bool:
    """Return whether a pod is to be evicted because of an attempt: it succeeded, and it was not a dry run."""
    return attempt.result is Result.SUCCESS


def migrating_profiles(
    configuration: DeschedulerConfiguration, registry: Registry
) -> dict[str, MigrationControllerArgs]:
    """Return the profiles whose pods leave by migration jobs -> arguments of their MigrationController.

    The other profiles evict pods directly.

    Args:
        configuration: The effective configuration.
        registry: Plugins that it can name.

    Raises:
        InvalidInput: The arguments of the MigrationController are invalid.
    """
    return {
        profile.name: profile_args(profile, migration_controller.NAME, registry)
        for profile in configuration.profiles
        if profile.plugins.evict.enabled[0].name == migration_controller.NAME
    }


def proposed_changes(
    proposals: Iterable[Proposal], leaving: Container[str], cluster: ClusterView
) -> list[ObjectChange]:
    """Return the changes of nodes and pods that plugins proposed in a round.

    A node that is closed and opened again in the round stays as it is. A node that no pod leaves is not closed.

    Args:
        proposals: The proposals of the round, in order.
        leaving: Nodes that at least one pod of the round leaves.
        cluster: The view of the round.
    """
    opened: dict[str, list[bool]] = {}
    found: list[ObjectChange] = []
    for each in proposals:
        if isinstance(each, SetSchedulable):
            opened.setdefault(each.node, []).append(each.schedulable)
            continue
        pod = cluster.pod_by_uid[each.pod]
        annotations = {keys.POD_DELETION_COST: str(each.cost)}
        patch = {"metadata": {"annotations": annotations}}
        found.append(PatchObject(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid, patch=patch))
    closed = [node for node, steps in opened.items() if not any(steps) and node in leaving]
    return [*(ChangeNode(name=node, unschedulable=True) for node in closed), *found]
