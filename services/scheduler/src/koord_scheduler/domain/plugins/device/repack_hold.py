"""GpuRepackHold: holds the GPUs on the nodes of a repack plan for the gang of the plan, until the plan ends. The
descheduler moves pods so that a gang finds whole GPUs (`koordcore.events.migration`). Without this plugin, another pod
could take the freed GPUs before the gang is attempted.
"""

from typing import Final

import msgspec
from koordcore.events.envelope import Event, StoredEvent
from koordcore.events.migration import RepackEnded, RepackForgotten, RepackPlanned
from koordcore.protocol.hardware.device_requests import GPU_NAMES
from koordcore.protocol.objects import Pod
from koordcore.values import codec

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.columns.node_columns import NodeColumns
from koord_scheduler.domain.framework.extension_points import CONCERNS, FOLD, PRE_FILTER
from koord_scheduler.domain.framework.outcomes import Candidates
from koord_scheduler.domain.plugins.gang.parameters import gang_id_of
from koord_scheduler.domain.plugins.reservation.books import ReservationBooks

_GPUS: Final = frozenset(GPU_NAMES)


class _Plan(msgspec.Struct, frozen=True):
    """A plan under way: the gang, the uids of its members, the nodes on which room is made, the gang's priority."""

    gang: str
    members: frozenset[str]
    nodes: frozenset[str]
    priority: int

    def holds_against(self, pod: PodRecord, gang: str) -> bool:
        """Return whether a pod of the gang with this id ("": of none) must not take the GPUs of the plan's nodes."""
        return pod.priority <= self.priority and gang != self.gang and pod.uid not in self.members


class GpuRepackHold:
    """The plugin GpuRepackHold: keeps other pods with GPUs of at most the gang's priority away from the plan's nodes. A
    pod may use the GPUs of its own Reservation on these nodes, because the plan does not count on them.
    """

    name = "GpuRepackHold"
    extension_points = (CONCERNS, PRE_FILTER, FOLD)
    kinds = frozenset({"repack"})

    def __init__(self, nodes: NodeColumns, reservations: ReservationBooks) -> None:
        self._nodes = nodes
        self._reservations = reservations
        self._plans: dict[str, _Plan] = {}

    def concerns(self, pod: Pod) -> bool:
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        return any(not _GPUS.isdisjoint(each.resources.requests) for each in containers)

    def pre_filter(self, pod: PodRecord, now: float) -> Candidates | None:
        if not self._plans or pod.pod is None or pod.subject is None:
            return None
        gang, own = gang_id_of(pod.pod), self._reservations.rows_of(pod.subject.pod_class)
        held = {id_: plan for id_, plan in self._plans.items() if plan.holds_against(pod, gang)}
        if not held:
            return None
        nodes = frozenset[str]().union(*(plan.nodes for plan in held.values()))
        texts = [f"repack plan {id_} holds their GPUs for {plan.gang}" for id_, plan in sorted(held.items())]
        return Candidates(without=nodes - {self._nodes.names[row] for row in own}, reason=", ".join(texts))

    def apply(self, event: Event, stored: StoredEvent) -> bool:
        """Hold the GPUs of a new plan, or release the GPUs of a plan that has ended. Return True if a plan has
        ended.
        """
        match event:
            case RepackPlanned():
                members = frozenset(each.uid for each in event.members)
                self._plans[stored.ref.id] = _Plan(event.gang, members, frozenset(event.nodes), event.priority)
            case RepackEnded() | RepackForgotten():
                return self._plans.pop(stored.ref.id, None) is not None
            case _:
                pass
        return False

    def facts(self) -> bytes:
        return codec.encode_canonical(self._plans)

    def restore(self, facts: bytes) -> None:
        self._plans = codec.decode(facts, dict[str, _Plan])
