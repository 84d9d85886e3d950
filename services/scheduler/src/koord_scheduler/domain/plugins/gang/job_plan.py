"""Place a whole job in one scheduling cycle: all planned pods are assumed and permitted, or none of them.

    by_node      the planned pods per node, in the order in which they are tried
    assume_all   tries them; a function of the caller filters, assumes and reserves one pod
    permit_all   releases the job through Permit

Source: scheduler-core spec, 12.1
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from koord_scheduler.domain.plugins.gang.cache import GangCache
from koord_scheduler.domain.plugins.gang.outcomes import Consequences, Refused, Released, joined


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPod:
    """A pod of a job and the node that the plan gives it."""

    uid: str
    key: str  # Its `namespace/name`
    node: str  # Name of the planned node; "" if the plan has none for it
    is_done: bool = False  # Whether the pod is skipped, because it is being deleted or is placed already


@dataclass(frozen=True, slots=True)
class JobAssumed:
    """The result that all pods of the job are assumed on their planned nodes."""

    pods: tuple[PlannedPod, ...]  # The pods, in the order in which they were assumed


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The result that a member of the job could not be placed, so that every assumed member must be undone."""

    message: str  # Reason for the pod that started the attempt. The failure is final: the pod never preempts.
    # Planned pods that lose their nodes, the last assumed one first. The gang counts them as pending already.
    undo: tuple[PlannedPod, ...] = ()
    rejected: tuple[str, ...] = ()  # Uids of other members that waited at Permit before and lose their nodes as well


Attempt = Callable[[PlannedPod], str | None]
"""A function that filters the pod on its node, assumes and reserves it. It returns None, or why that failed."""


def by_node(pods: Sequence[PlannedPod]) -> dict[str, list[PlannedPod]]:
    """Return node -> the pods planned on it, ordered by `namespace/name`, without those with `is_done`. Nodes are in
    alphabetical order.
    """
    found: dict[str, list[PlannedPod]] = {}
    for pod in sorted(pods, key=lambda pod: (pod.node, pod.key)):
        if not pod.is_done:
            found.setdefault(pod.node, []).append(pod)
    return found


def assume_all(pods: Sequence[PlannedPod], least: int, attempt: Attempt) -> JobAssumed | JobFailed:
    """Assume every pod of a job on its planned node. Pods with `is_done` are not tried. If one pod fails, the other
    pods of its node are skipped, pods of later nodes are still tried, and the job fails. If a pod has no planned node,
    the job fails before any pod is tried.

    Args:
        least: Minimum number of pods in the plan, pods with `is_done` included. With fewer the job fails at once.
        attempt: Filters, assumes and reserves one pod on its node. It returns None, or the reason why the pod failed.

    Returns:
        `JobAssumed` if all pods are assumed. `JobFailed` with the assumed pods, which the caller must undo, if not.
    """
    unplanned = [pod for pod in pods if not pod.is_done and not pod.node]
    if unplanned:
        return JobFailed(f"pod {min(pod.key for pod in unplanned)} has no node in the plan of its job")
    if len(pods) < least:
        return JobFailed(f"the plan has {len(pods)} pods, the job needs at least {least}")
    assumed: list[PlannedPod] = []
    failed: list[tuple[PlannedPod, str]] = []
    for node, on_node in by_node(pods).items():
        reason: str | None = None
        for pod in on_node:
            if reason is None:
                reason = attempt(pod)
                if reason is None:
                    assumed.append(pod)
                else:
                    failed.append((pod, reason))
            else:
                failed.append((pod, f"another pod of the job failed on node {node}"))
    if not failed:
        return JobAssumed(tuple(assumed))
    return JobFailed(_failure(assumed, failed), tuple(reversed(assumed)))


def permit_all(cache: GangCache, pods: Sequence[PlannedPod]) -> Released | JobFailed:
    """Call Permit for the assumed pods of a job one by one; the last one releases the whole job. If a pod is refused,
    or if the last one must still wait, all pods are unreserved and the job fails.
    """
    refusal = "it still waits for members after all planned pods were permitted"
    allowed: list[str] = []
    activate: tuple[str, ...] = ()
    for index, pod in enumerate(pods):
        outcome = cache.permit(pod.uid)
        if isinstance(outcome, Refused):
            refusal = outcome.message
            break
        if isinstance(outcome, Released):
            allowed += outcome.consequences.allowed
            activate = outcome.consequences.activate
            if index + 1 == len(pods):
                return Released(Consequences(allowed=tuple(dict.fromkeys(allowed)), activate=activate))
    planned = {pod.uid for pod in pods}
    rejected = [uid for pod in pods for uid in cache.unreserve(pod.uid).rejected if uid not in planned]
    return JobFailed(f"job failed due to {refusal}", tuple(reversed(pods)), tuple(rejected))


def _failure(assumed: Sequence[PlannedPod], failed: Sequence[tuple[PlannedPod, str]]) -> str:
    first, reason = min(failed, key=lambda item: item[0].key)
    others = joined(pod.key for pod in assumed if pod.node == first.node)
    return (
        f"job failed due to {reason}, assumed {len(assumed)} pods, failed {len(failed)} pods, "
        f"first failed pod {first.key}@{first.node} failed due to {reason}, "
        f"assumed pods on node {first.node}: {others}"
    )
