"""SchedulingHint: nodes that an annotation of the pod requires or prefers.

Source: scheduler-core spec, 11.2, 11.3
"""

from collections.abc import Hashable
from typing import cast

from koordcore.protocol import keys
from koordcore.protocol.objects import Pod

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.cluster.scheduling_hint import Hint, scheduling_hint
from koord_scheduler.domain.config.koordinator_args import SchedulingHintArgs
from koord_scheduler.domain.framework.extension_points import CONCERNS, PRE_FILTER, QUEUEING_HINTS, READ_POD
from koord_scheduler.domain.framework.fact_points import WakesItself
from koord_scheduler.domain.framework.outcomes import Candidates, Rejection


class SchedulingHint(WakesItself):
    """The plugin SchedulingHint: restricts a pod to the required nodes of its hint, and tries preferred ones first."""

    name = "SchedulingHint"
    extension_points = (CONCERNS, PRE_FILTER, READ_POD, QUEUEING_HINTS)

    def __init__(self, args: SchedulingHintArgs | None = None) -> None:
        self.args = args or SchedulingHintArgs()

    def concerns(self, pod: Pod) -> bool:
        return scheduling_hint(pod.metadata.annotations) is not None

    def read(self, pod: Pod) -> Hashable:
        return scheduling_hint(pod.metadata.annotations)

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | Candidates | None:
        """Restrict the pod to the required nodes of its hint, and let the preferred nodes be tried first. Reject the
        pod if the annotation is invalid.
        """
        hint = cast("Hint | None", pod.subject.pod_class.aspects.get(self.name)) if pod.subject is not None else None
        if hint is None:
            return None
        if hint.problem:
            return Rejection(plugin=self.name, message=f"annotation {keys.SCHEDULING_HINT}: {hint.problem}")
        return Candidates(names=hint.required or None, preferred=hint.preferred[: self.args.max_hint_nodes])
