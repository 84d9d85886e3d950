"""The effects of a round: evictions of pods as facts, and changes of nodes and pods.

Source:
    descheduler spec, 5.1, 6.3
"""

from collections.abc import Container, Iterable
from typing import Final

from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects.gateway import PodEvictionRequested
from koordcore.protocol import keys
from koordcore.requests.objects import ChangeNode, ObjectChange, PatchObject

from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.framework.eviction import Attempt, Result
from koord_descheduler.domain.framework.proposals import Proposal, SetSchedulable
from koord_descheduler.domain.plugins.evictors import migration_controller
from koord_descheduler.domain.view.cluster import ClusterView
from koord_descheduler.domain.view.pods import PodView

INITIATOR: Final = "descheduler"
REASON: Final = "Descheduled"
LONGEST_MESSAGE: Final = 1024


def eviction_draft(attempt: Attempt, last_seq: int) -> Draft:
    """Return the fact that asks the gateway to evict a pod.

    Args:
        attempt: A successful attempt of the round.
        last_seq: Sequence of the last event of the pod's eviction; 0 if there was none.
    """
    pod = attempt.pod
    event = PodEvictionRequested(
        namespace=pod.namespace,
        name=pod.name,
        node=pod.node,
        initiator=INITIATOR,
        method="evict",
        reason=REASON,
        message=f"{attempt.reason} ({attempt.plugin})"[:LONGEST_MESSAGE],
        trigger=attempt.plugin,
    )
    return Draft(eviction_ref(pod), event, last_seq)


def eviction_ref(pod: PodView) -> AggregateRef:
    """Return the aggregate of the eviction of a pod."""
    return AggregateRef("eviction", pod.uid)


def is_to_carry_out(attempt: Attempt) -> bool:
    """Return whether a pod is to be evicted because of an attempt: it succeeded, and it was not a dry run."""
    return attempt.result is Result.SUCCESS


def migrating_profiles(configuration: DeschedulerConfiguration) -> frozenset[str]:
    """Return the profiles whose pods leave by migration jobs. The other profiles evict pods directly."""
    return frozenset(
        profile.name
        for profile in configuration.profiles
        if profile.plugins.evict.enabled[0].name == migration_controller.NAME
    )


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
