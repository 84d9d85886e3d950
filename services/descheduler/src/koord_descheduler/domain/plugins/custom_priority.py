"""CustomPriority: move pods from expensive classes of nodes to cheaper ones.

Source:
    descheduler spec, 9.1
"""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

import numpy as np
from koordcore.protocol.component_config import Text, WireModel
from koordcore.values.invalid import InvalidInput
from koordcore.values.resources import Amounts, parse_amounts
from pydantic import StrictBool, StrictFloat

from koord_descheduler.domain.config.arguments import LabelSelectorArgs, check_choice, check_selector, native_args
from koord_descheduler.domain.framework.plugin import PluginRun, Point, SetSchedulable
from koord_descheduler.domain.framework.registry import PluginKind
from koord_descheduler.domain.plugins.scope import Scope, ScopeArgs, check_scope
from koord_descheduler.domain.view.fit import Column, FitIndex
from koord_descheduler.domain.view.nodes import NodeView
from koord_descheduler.domain.view.pods import PodView

NAME: Final = "CustomPriority"
_MAX_MISSES: Final = 5
"""Number of pods in a row that fit nowhere, after which the rest of a node is not tried."""
_BOOKED: Final = ("cpu", "memory")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_SUBDOMAIN: Final = 253


class EvictMode(StrEnum):
    """Unit of eviction: single pods (BestEffort), or all pods of a node or none (DrainNode)."""

    BEST_EFFORT = "BestEffort"
    DRAIN_NODE = "DrainNode"


class Level(WireModel):
    name: Text = ""  # Name of the class
    node_selector: LabelSelectorArgs | None = None
    keep_threshold: StrictFloat | None = None  # Accepted, without effect
    reject_threshold: StrictFloat | None = None  # Accepted, without effect


class CustomPriorityArgs(ScopeArgs):
    eviction_order: tuple[Level, ...] = ()  # Classes of nodes, the most expensive first
    mode: Text = EvictMode.BEST_EFFORT  # Whether single pods leave, or all pods of a node or none
    node_fit: StrictBool = True  # Whether a pod must fit a node of a cheaper class
    auto_cordon: StrictBool = False  # Whether a node is closed for new pods before all its pods leave
    dry_run: StrictBool = False


def check(args: CustomPriorityArgs) -> Iterator[InvalidInput]:
    yield from check_scope(args)
    yield from check_choice(args.mode, EvictMode, "mode")
    if len(args.eviction_order) < 2:
        yield InvalidInput("at least two levels", len(args.eviction_order), "evictionOrder")
    names: set[str] = set()
    for index, level in enumerate(args.eviction_order):
        path = f"evictionOrder[{index}]"
        if len(level.name) > _MAX_SUBDOMAIN or not _SUBDOMAIN.fullmatch(level.name):
            yield InvalidInput("a DNS-1123 subdomain", level.name, f"{path}.name")
        if level.name in names:
            yield InvalidInput("a name that is used once", level.name, f"{path}.name")
        names.add(level.name)
        if level.node_selector is None:
            yield InvalidInput("given", None, f"{path}.nodeSelector")
        yield from check_selector(level.node_selector, f"{path}.nodeSelector")
        for field, value in (("keepThreshold", level.keep_threshold), ("rejectThreshold", level.reject_threshold)):
            if value is not None and not 0 <= value <= 100:
                yield InvalidInput("within 0..100", value, f"{path}.{field}")


class CustomPriority:
    name = NAME

    def __init__(self, args: CustomPriorityArgs) -> None:
        self._args = args
        self._scope = Scope(args)
        self._levels = [
            (level.name, level.node_selector.compiled())
            for level in args.eviction_order
            if level.node_selector is not None
        ]

    def balance(self, run: PluginRun) -> None:
        """Evict pods from the nodes of each level that has a cheaper one, the most expensive level first.

        With `node_fit`, a pod must fit a node of a cheaper level. In mode DrainNode, all pods of a node leave or none.
        No-op if the plugin is paused.
        """
        if self._args.paused:
            return
        members: dict[str, list[NodeView]] = {}
        for node in self._scope.nodes(run):
            level = next((name for name, selector in self._levels if selector.matches(node.labels)), None)
            if level is not None:
                members.setdefault(level, []).append(node)
        levels = [name for name, _ in self._levels if name in members]
        bookings = _Bookings()
        for position, level in enumerate(levels[:-1]):
            targets = [node for cheaper in levels[position + 1 :] for node in members[cheaper]]
            index = FitIndex(targets, run.cluster)
            for node in members[level]:
                pods = self._pods(node, run)
                if not pods:
                    continue
                if self._args.mode == EvictMode.DRAIN_NODE:
                    self._drain(node, level, pods, index, bookings, run)
                else:
                    self._evict_fitting(level, pods, index, run)

    def _pods(self, node: NodeView, run: PluginRun) -> list[PodView]:
        """The pods of a node that may leave, the smallest first."""
        pods = [pod for pod in run.cluster.unfinished_on(node.name) if self._scope.may_leave(pod, run)]
        return sorted(pods, key=_size)

    def _evict_fitting(self, level: str, pods: Sequence[PodView], index: FitIndex, run: PluginRun) -> None:
        leaving, misses = list[PodView](), 0
        for pod in pods:
            if self._args.node_fit and not index.fits_any(pod):
                misses += 1
                if misses == _MAX_MISSES:
                    break
                continue
            misses = 0
            leaving.append(pod)
        evict = run.try_evict if self._args.dry_run else run.evict
        for pod in leaving:
            evict(pod, f"evicting from {level} priority resource to lower priority resource")

    def _drain(
        self,
        node: NodeView,
        level: str,
        pods: Sequence[PodView],
        index: FitIndex,
        bookings: "_Bookings",
        run: PluginRun,
    ) -> None:
        """Evict all pods of a node if all of them have a place; else leave the node alone."""
        if not bookings.book(pods, index, needs_fit=self._args.node_fit):
            return
        reason = f"drain node {node.name} (sourcePriority={level})"
        if self._args.dry_run:
            for pod in pods:
                run.try_evict(pod, reason)
            return
        closes = self._args.auto_cordon and not node.is_unschedulable
        if closes:
            run.propose(SetSchedulable(node.name, schedulable=False, plugin=NAME))
        for pod in pods:
            if not run.evict(pod, reason):
                if closes:
                    run.propose(SetSchedulable(node.name, schedulable=True, plugin=NAME))
                return


class _Bookings:
    """Cpu and memory that earlier pods of this round take on the targets, by name of the target."""

    def __init__(self) -> None:
        self._booked: dict[str, dict[str, int]] = {}

    def book(self, pods: Sequence[PodView], index: FitIndex, *, needs_fit: bool) -> bool:
        """Book a target for each pod. If a pod finds none, book nothing and return False."""
        left: dict[str, Column] = {
            resource: index.free(resource)
            - np.array([self._booked.get(node.name, {}).get(resource, 0) for node in index.nodes], dtype=np.int64)
            for resource in _BOOKED
        }
        chosen: list[tuple[str, PodView]] = []
        for pod in pods:
            has_room = np.ones(len(index.nodes), dtype=np.bool_)
            for resource in _BOOKED:
                has_room &= left[resource] >= pod.requests.get(resource, 0)
            positions = index.fitting(pod, has_room) if needs_fit else iter(np.flatnonzero(has_room).tolist())
            position = next(positions, None)
            if position is None:
                return False
            for resource in _BOOKED:
                left[resource][position] -= pod.requests.get(resource, 0)
            chosen.append((index.nodes[position].name, pod))
        for name, pod in chosen:
            booked = self._booked.setdefault(name, {})
            for resource in _BOOKED:
                booked[resource] = booked.get(resource, 0) + pod.requests.get(resource, 0)
        return True


def _size(pod: PodView) -> tuple[int, int, str, str]:
    """The sort key of a pod: cpu and memory of its containers, then namespace and name."""
    containers: list[Amounts] = [
        parse_amounts(container.resources.requests) for container in pod.object.spec.containers
    ]
    cpu, memory = (sum(each.get(name, 0) for each in containers) for name in _BOOKED)
    return cpu, memory, pod.namespace, pod.name


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.BALANCE}),
    is_native=True,
    decode=lambda raw: native_args(raw, CustomPriorityArgs),
    check=check,
    make=lambda args, _: CustomPriority(args),
)
