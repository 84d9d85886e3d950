"""A whole job in one cycle: every planned pod is assumed on its node and permitted, or nothing is.

    by_node      who is tried where, in which order
    assume_all   try them; the caller's function filters, assumes and reserves one pod
    permit_all   release the job through Permit

Source:
    scheduler-core spec, 12.1
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from koord_scheduler.domain.gang.cache import GangCache
from koord_scheduler.domain.gang.outcomes import Consequences, Refused, Released, joined


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPod:
    """A pod and its node. key: `namespace/name`; is_done: it is being deleted or placed already, and is passed over."""

    uid: str
    key: str
    node: str
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class JobAssumed:
    """All pods have their nodes. pods: in the order in which they were assumed."""

    pods: tuple[PlannedPod, ...]


@dataclass(frozen=True, slots=True)
class JobFailed:
    """Nothing may stay. message: the failure of the trigger pod, final: it never preempts.

    Attributes:
        undo: Planned pods that lose their nodes, last assumed first; the gang counts them as pending already.
        rejected: Uids of other members that waited before and lose their nodes, too.
    """

    message: str
    undo: tuple[PlannedPod, ...] = ()
    rejected: tuple[str, ...] = ()


Attempt = Callable[[PlannedPod], str | None]
"""Filter the pod on its node, assume and reserve it; None: done, else why not."""


def by_node(pods: Sequence[PlannedPod]) -> dict[str, list[PlannedPod]]:
    """Node -> its pods by name; nodes by name."""
    found: dict[str, list[PlannedPod]] = {}
    for pod in sorted(pods, key=lambda pod: (pod.node, pod.key)):
        if not pod.is_done:
            found.setdefault(pod.node, []).append(pod)
    return found


def assume_all(pods: Sequence[PlannedPod], least: int, attempt: Attempt) -> JobAssumed | JobFailed:
    """Try every pod on its planned node; the first failure on a node fails the rest of that node and the job.

    Args:
        least: Fewest pods that the job is; a plan for fewer fails at once.
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
    """Permit one by one; released when the last one is. A refusal, or a last one that still waits, undoes all."""
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
    beside = joined(pod.key for pod in assumed if pod.node == first.node)
    return (
        f"job failed due to {reason}, assumed {len(assumed)} pods, failed {len(failed)} pods, "
        f"first failed pod {first.key}@{first.node} failed due to {reason}, "
        f"assumed pods on node {first.node}: {beside}"
    )
