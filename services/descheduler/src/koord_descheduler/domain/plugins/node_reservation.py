"""RemovePodsViolatingNodeReservation: evict pods that occupy resources which a node's annotation reserves.

Source:
    descheduler spec, 9.4
"""

from collections.abc import Iterator, Sequence
from typing import Final

from koordcore.events.descheduling import Inputs, Number
from koordcore.protocol.annotations.allocation import allocation_of
from koordcore.protocol.annotations.node import POLICY_DEFAULT, reserved_resources
from koordcore.protocol.component_config import Text
from koordcore.values.cpuset import format_cpuset, parse_cpuset
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import CPU
from pydantic import StrictBool

from koord_descheduler.domain.config.arguments import native_args
from koord_descheduler.domain.framework.plugin import PluginRun, Point
from koord_descheduler.domain.framework.registry import PluginKind
from koord_descheduler.domain.plugins.scope import Scope, ScopeArgs, check_resources, check_scope
from koord_descheduler.domain.view.cluster import total_requests
from koord_descheduler.domain.view.fit import FitIndex
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.orders import give_up_order
from koord_descheduler.domain.view.pods import PodView

NAME: Final = "RemovePodsViolatingNodeReservation"


class RemovePodsViolatingNodeReservationArgs(ScopeArgs):
    dry_run: StrictBool = False
    node_fit: StrictBool = True  # Whether a pod must fit another node
    resources: tuple[Text, ...] = ("cpu", "memory")  # Resources whose reserved amounts are enforced
    reserved_cpus: StrictBool = True  # Whether pods with exclusive CPUs must leave the reserved ones


def check(args: RemovePodsViolatingNodeReservationArgs) -> Iterator[InvalidInput]:
    yield from check_scope(args)
    yield from check_resources(args.resources)


class RemovePodsViolatingNodeReservation:
    """Evicts pods on reserved CPUs, then the cheapest pods until the reserved amounts are free."""

    name = NAME

    def __init__(self, args: RemovePodsViolatingNodeReservationArgs) -> None:
        self._args = args
        self._scope = Scope(args)

    def deschedule(self, run: PluginRun) -> None:
        if self._args.paused:
            return
        index = FitIndex(run.nodes, run.cluster)
        for node in self._scope.nodes(run):
            if node.reservation.resources or node.reservation.reserved_cpus:
                _NodeVisit(self._args, node, run).free(self._candidates(node, index, run))

    def _candidates(self, node: NodeView, index: FitIndex, run: PluginRun) -> list[PodView]:
        return give_up_order(
            pod
            for pod in _staying(node, run)
            if self._scope.may_leave(pod, run)
            and run.pre_eviction_filter(pod)
            and (not self._args.node_fit or index.fits_any(pod, other_than=node.name))
        )


def _staying(node: NodeView, run: PluginRun) -> list[PodView]:
    """The pods of a node that will stay if nothing is done."""
    pods = run.cluster.unfinished_on(node.name)
    return [pod for pod in pods if not pod.is_terminating and pod.uid not in run.cluster.migrating]


class _NodeVisit:
    """The evictions from one node. Each successful eviction lowers the sum of requests on the node."""

    def __init__(self, args: RemovePodsViolatingNodeReservationArgs, node: NodeView, run: PluginRun) -> None:
        self._args = args
        self._node = node
        self._run = run
        self._requested = total_requests(_staying(node, run))

    def free(self, candidates: Sequence[PodView]) -> None:
        """Evict candidates, in give-up order, from the reserved CPUs, then as many as the reserved amounts need."""
        reservation = self._node.reservation
        reserved = _cpus(reservation.reserved_cpus) if self._args.reserved_cpus else frozenset[int]()
        others: list[PodView] = []
        for pod in candidates:
            shared = reserved & _cpus(allocation_of(pod.annotations).cpuset) if reserved else reserved
            if shared:
                self._evict(pod, f"pod occupies reserved CPUs {format_cpuset(shared)}")
            else:
                others.append(pod)
        if reservation.apply_policy not in ("", POLICY_DEFAULT):
            return
        for pod in others:
            exceeded = self._exceeded()
            if not exceeded:
                return
            if any(pod.requests.get(name, 0) > 0 for name in exceeded):
                parts = [
                    f"{name} requested({self._text(name, self._requested.get(name, 0))})"
                    f">allocatable({self._text(name, self._node.allocatable.get(name, 0))})"
                    for name in exceeded
                ]
                inputs = {
                    f"{name} requested": Number(
                        value=self._requested.get(name, 0), limit=self._node.allocatable.get(name, 0)
                    )
                    for name in exceeded
                }
                self._evict(pod, f"node reserved resources are occupied: {', '.join(parts)}", inputs)

    def _exceeded(self) -> list[str]:
        """Reserved resources of which pods request more than the node has without the reservation."""
        named = reserved_resources(self._node.reservation)
        return [
            name
            for name in self._args.resources
            if name in named and self._requested.get(name, 0) > self._node.allocatable.get(name, 0)
        ]

    def _evict(self, pod: PodView, reason: str, inputs: Inputs | None = None) -> None:
        if self._args.dry_run:
            self._run.try_evict(pod, reason, inputs)
        if self._args.dry_run or self._run.evict(pod, reason, inputs):
            for name, amount in pod.requests.items():
                self._requested[name] = self._requested.get(name, 0) - amount

    @staticmethod
    def _text(name: str, amount: int) -> str:
        return f"{amount}m" if name == CPU else str(amount)


def _cpus(text: str) -> frozenset[int]:
    """Empty if the list is invalid."""
    try:
        return frozenset(parse_cpuset(text))
    except InvalidInput:
        return frozenset()


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.DESCHEDULE}),
    is_native=True,
    decode=lambda raw: native_args(raw, RemovePodsViolatingNodeReservationArgs),
    check=check,
    make=lambda args, _: RemovePodsViolatingNodeReservation(args),
)
