"""SchedulingHint: nodes that an annotation of the pod requires or prefers.

Source:
    scheduler-core spec, 11.2, 11.3
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import cast

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.kube_struct import KubeStruct
from koordcore.protocol.objects import Pod
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.config.args.koordinator import SchedulingHintArgs
from koord_scheduler.domain.framework.extension_points import CONCERNS, PRE_FILTER, QUEUEING_HINTS, READ_POD
from koord_scheduler.domain.framework.fact_points import WakesItself
from koord_scheduler.domain.framework.outcomes import Candidates, Rejection
from koord_scheduler.domain.pods.record import PodRecord


class _Written(KubeStruct):
    """The JSON of the annotation. Its field `extensions` is ignored."""

    node_names: list[str] = []
    preferred_node_names: list[str] = []


@dataclass(frozen=True, slots=True)
class Hint:
    """The content of a pod's scheduling-hint annotation.

    Attributes:
        required: The only candidate nodes; empty for all nodes.
        preferred: Nodes that are tried first, in this order.
        problem: Why the annotation is invalid; "" if it is valid.
    """

    required: frozenset[str] = frozenset()
    preferred: tuple[str, ...] = ()
    problem: str = ""


def scheduling_hint(pod: Pod) -> Hint | None:
    """Return the hint in the pod's annotation, or None if it has none.

    The internal key takes precedence over its deprecated alias.
    """
    annotations = pod.metadata.annotations
    text = annotations.get(keys.SCHEDULING_HINT) or annotations.get(keys.SCHEDULING_HINT_ALIAS)
    if not text:
        return None
    try:
        written = lenient_json.decode(text, _Written)
    except InvalidInput as error:
        return Hint(problem=str(error))
    return Hint(frozenset(written.node_names), tuple(written.preferred_node_names))


class SchedulingHint(WakesItself):
    """The plugin SchedulingHint: restricts a pod to the required nodes of its hint, and tries preferred ones first."""

    name = "SchedulingHint"
    extension_points = (CONCERNS, PRE_FILTER, READ_POD, QUEUEING_HINTS)

    def __init__(self, args: SchedulingHintArgs | None = None) -> None:
        self.args = args or SchedulingHintArgs()

    def concerns(self, pod: Pod) -> bool:
        """See `ConcernedPlugin.concerns`: pods with the annotation."""
        return scheduling_hint(pod) is not None

    def read(self, pod: Pod) -> Hashable:
        """See `PodReader.read`."""
        return scheduling_hint(pod)

    def pre_filter(self, pod: PodRecord, now: float) -> Rejection | Candidates | None:
        """See `PreFilterPlugin.pre_filter`."""
        hint = cast("Hint | None", pod.subject.pod_class.aspects.get(self.name)) if pod.subject is not None else None
        if hint is None:
            return None
        if hint.problem:
            return Rejection(plugin=self.name, message=f"annotation {keys.SCHEDULING_HINT}: {hint.problem}")
        return Candidates(names=hint.required or None, preferred=hint.preferred[: self.args.max_hint_nodes])
