"""Disruptions: which component or user took a pod away from its workload, and why.

A disruption is an eviction, a deletion or the loss of the node. `cause_of` classifies an eviction; the descheduler uses
it to count the disrupted pods of a workload. `disruption_of` finds the disruption of one pod, for `koord explain pod`.

Source: descheduler spec, 12 ("why was this pod moved" must be answerable from the log alone).
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from koordcore.events.envelope import StoredEvent
from koordcore.events.gateway import PodEvictionFailed, PodEvictionRequested, PodEvictionWithdrawn
from koordcore.events.objects import PodSpecAdded, PodSpecChanged, PodSpecDeleted
from koordcore.events.pod import PodReleased
from koordcore.protocol.objects import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER, Pod
from koordcore.stories.moment import Moment

DRAIN_TRIGGER: Final = "Drain"  # Trigger of evictions that a drain requests


class Cause(StrEnum):
    """The causes for which a pod is taken away from its workload."""

    MIGRATION = "migration"  # A PodMigrationJob of the descheduler moves it
    DRAIN = "drain"  # The descheduler empties its node
    DESCHEDULING = "descheduling"  # A plugin of the descheduler evicts it without a migration job
    PREEMPTION = "preemption"  # A pod of higher priority takes its place
    SCHEDULER = "eviction by the scheduler"  # The scheduler evicts it for another reason, such as its quota
    AGENT = "eviction by the node's agent"  # The agent of its node evicts it
    RECOMMENDATION = "recommendation"  # The recommender evicts it, so that a new pod gets the recommended requests
    # Somebody else used the eviction API of the API server, for example `kubectl drain`.
    API_EVICTION = "eviction through the API server"
    KUBELET = "eviction by the kubelet"  # The kubelet ends it, for example for lack of memory on the node
    NODE_LOSS = "node loss"  # Its node is gone or has a NoExecute taint
    DELETION = "deletion"  # Somebody deleted it


_BY_INITIATOR: Final = {
    "descheduler": Cause.DESCHEDULING,
    "scheduler": Cause.SCHEDULER,
    "agent": Cause.AGENT,
    "recommender": Cause.RECOMMENDATION,
}
# Reason of the condition DisruptionTarget -> cause, for pods that no component of Koordstream takes.
_BY_CONDITION: Final = {
    "EvictionByEvictionAPI": Cause.API_EVICTION,
    PREEMPTION_BY_SCHEDULER: Cause.PREEMPTION,
    "DeletionByTaintManager": Cause.NODE_LOSS,
    "DeletionByPodGC": Cause.NODE_LOSS,
    "TerminationByKubelet": Cause.KUBELET,
}


class Disruption(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The disruption of one pod: who takes, or took, the pod away from its workload, and why."""

    cause: Cause  # Kind of the disruption
    by: str = ""  # Component or plugin that decided it; "" if it is unknown
    job: str = ""  # Name of the migration job; "" if there is none
    node: str = ""  # Node that the pod leaves; "" if it is unknown
    message: str = ""  # Reason as a sentence; may be empty
    at: str  # RFC 3339 time of the decision
    is_over: bool = False  # Whether the pod has left

    @property
    def sentence(self) -> str:
        """Return the disruption as a sentence: `taken by migration (LowNodeLoad, job a) from n: node is overused`."""
        who = ", ".join(filter(None, (self.by, f"job {self.job}" if self.job else "")))
        begin = "taken" if self.is_over else "is being taken"
        where = f" from {self.node}" if self.node else ""
        text = f"{begin} by {self.cause}{f' ({who})' if who else ''}{where}"
        return f"{text}: {self.message}" if self.message else text


def cause_of(request: PodEvictionRequested) -> Cause:
    """Return the cause of a requested eviction, from the component, trigger, job and reason in the request. If the
    component is unknown, return API_EVICTION.
    """
    if request.initiator == "scheduler" and request.reason == "Preempted":
        return Cause.PREEMPTION
    if request.trigger == DRAIN_TRIGGER:
        return Cause.DRAIN
    return Cause.MIGRATION if request.job else _BY_INITIATOR.get(request.initiator, Cause.API_EVICTION)


def disruption_of(moments: Iterable[Moment]) -> Disruption | None:
    """Return the disruption of a pod: who takes or took it away from its workload, and why. None without a disruption.
    If a component requested the eviction, the result names this component, whoever deleted the pod afterwards. Without
    a request, the pod's condition DisruptionTarget names the cause. Otherwise the pod was deleted, or its node was
    lost.

    `moments`: the life of the pod in order, see `koordcore.stories.pod.pod_story`.
    """
    found: Disruption | None = None
    target: Disruption | None = None
    for moment in moments:
        event, stored = moment.event, moment.stored
        match event:
            case PodEvictionRequested():
                found = _requested(event, stored)
            case PodEvictionFailed() | PodEvictionWithdrawn():
                found = None
            case PodSpecAdded() | PodSpecChanged():
                target = _target(event.object, stored)
            case PodReleased() if event.reason == "node-gone":
                found = found or Disruption(cause=Cause.NODE_LOSS, node=event.node, at=stored.occurred_at, is_over=True)
            case PodSpecDeleted():
                ended = found or target or Disruption(cause=Cause.DELETION, at=stored.occurred_at)
                return msgspec.structs.replace(ended, is_over=True)
            case _:
                pass
    return found or target


def _requested(event: PodEvictionRequested, stored: StoredEvent) -> Disruption:
    return Disruption(
        cause=cause_of(event),
        by=event.trigger or event.initiator,
        job=event.job,
        node=event.node,
        message=event.message or event.reason,
        at=stored.occurred_at,
    )


def _target(pod: Pod, stored: StoredEvent) -> Disruption | None:
    """Return who takes a pod away as its condition DisruptionTarget says; None if the condition is not True."""
    for each in pod.status.conditions:
        if each.type == DISRUPTION_TARGET and each.status == "True":
            cause = _BY_CONDITION.get(each.reason, Cause.API_EVICTION)
            return Disruption(cause=cause, by=each.reason, node=pod.spec.node_name, at=stored.occurred_at)
    return None
