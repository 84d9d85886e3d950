"""Explanations of pods that were not placed, for the explanations stream."""

from dataclasses import dataclass

from koordcore.events.explanations import DecisionAbandoned, GangProgress, PodGated, PodUnschedulable
from koordcore.events.pod import DecisionBasis
from koordcore.protocol.objects import WAITING_FOR_GANG

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.loop.commit.work import Placement
from koord_scheduler.domain.loop.cycle.attempt import Found, NotFound
from koord_scheduler.domain.loop.queue.permit import Lost
from koord_scheduler.domain.loop.queue.queued_pod import QueuedPod


@dataclass(frozen=True, slots=True, kw_only=True)
class PodExplanation:
    """The reason why one pod was not placed, as it is published to the stream of explanations."""

    uid: str
    trigger: str  # Id of the event that caused the attempt
    traceparent: str  # W3C trace context of the pod; "" if there is none
    tracestate: str  # Vendor part of the trace context
    event: PodUnschedulable | PodGated | DecisionAbandoned
    decided_at: float = 0.0  # When the attempt was decided, in Unix seconds; 0.0 stands for the time of publishing

    @property
    def message(self) -> str:
        return self.event.reason if isinstance(self.event, DecisionAbandoned) else self.event.message

    @property
    def cause(self) -> str:
        """Return `trigger` with the number of the attempt or "gated", as causation id. It distinguishes the
        explanations of a pod that have the same trigger.
        """
        return f"{self.trigger}/{'gated' if isinstance(self.event, PodGated) else self.event.attempt}"


def refusal(
    pod: PodRecord,
    queued: QueuedPod,
    message: str,
    found: Found | NotFound,
    now: float,
    basis: DecisionBasis | None,
    condition: str,
) -> PodExplanation:
    """Of an attempt that found no node, or whose node was refused at Reserve or Permit. `basis` None: not recorded.
    `condition`: as in `Rejection`.
    """
    explanation = found.placed.explanation if isinstance(found, Found) else found.explanation
    diagnosis = None if isinstance(found, Found) else found.diagnosis
    return PodExplanation(
        uid=pod.uid,
        trigger=queued.trigger,
        traceparent=pod.traceparent,
        tracestate=pod.tracestate,
        event=PodUnschedulable(
            namespace=pod.namespace,
            name=pod.name,
            attempt=queued.attempts,
            queued_at=pod.submitted_at,
            message=message,
            explanation=explanation,
            diagnosis=diagnosis,
            basis=basis,
            reason=condition,
        ),
        decided_at=now,
    )


def waited_in_vain(lost: Lost, now: float, condition: str) -> PodExplanation:
    """The pod waited at Permit and lost its node. `condition`: as in `Rejection`."""
    work = lost.work
    seconds = "" if work.basis is None else f" {round(now - work.basis.decided_at)} s"
    waited = f"after waiting{seconds} with node {work.node} for the others of its gang"
    return PodExplanation(
        uid=work.uid,
        trigger=work.trigger,
        traceparent=work.traceparent,
        tracestate=work.tracestate,
        event=PodUnschedulable(
            namespace=work.namespace,
            name=work.name,
            attempt=work.attempt,
            queued_at=work.queued_at,
            message=f"rejected {waited}: {lost.why}" if lost.why else f"rejected due to timeout {waited}",
            explanation=work.explanation,
            basis=work.basis,
            reason=condition,
        ),
        decided_at=now,
    )


def waits_at_permit(work: Placement, gang: GangProgress | None) -> PodExplanation:
    """The pod has a node, which is not in the log yet, and waits at Permit for the others of its gang."""
    message = f"waits with node {work.node} until enough members of its gang have a node"
    return PodExplanation(
        uid=work.uid,
        trigger=f"{work.trigger}/permit/{work.attempt}",
        traceparent=work.traceparent,
        tracestate=work.tracestate,
        event=PodGated(namespace=work.namespace, name=work.name, message=message, reason=WAITING_FOR_GANG, gang=gang),
    )


def abandoned(work: Placement, reason: str) -> PodExplanation:
    """A placement will not be stored, and the pod is retried after a back-off. `reason`: one sentence."""
    return PodExplanation(
        uid=work.uid,
        trigger=work.trigger,
        traceparent=work.traceparent,
        tracestate=work.tracestate,
        event=DecisionAbandoned(
            namespace=work.namespace,
            name=work.name,
            attempt=work.attempt,
            reason=reason,
        ),
    )
