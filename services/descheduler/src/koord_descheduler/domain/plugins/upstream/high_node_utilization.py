"""HighNodeUtilization: empty nodes with low requests into the others, so that nodes can be removed.

It works with a scheduler that prefers full nodes.

Source:
    descheduler spec, 10.9
"""

from collections.abc import Iterator
from typing import Final

from koordcore.protocol.component_config import Text, WireModel
from koordcore.values.invalid import InvalidInput
from pydantic import StrictInt

from koord_descheduler.domain.config.arguments import Namespaces, upstream_args
from koord_descheduler.domain.framework.plugin import PluginRun, Point
from koord_descheduler.domain.framework.registry import PluginKind
from koord_descheduler.domain.plugins.upstream import utilization
from koord_descheduler.domain.view.pods import PodView

NAME: Final = "HighNodeUtilization"
ONLY_THRESHOLDING: Final = "OnlyThresholdingResources"


class HighNodeUtilizationArgs(WireModel):
    thresholds: utilization.Percentages = {}  # Percentages up to which a node is underutilized, in all resources
    number_of_nodes: StrictInt = 0  # The plugin evicts only if more nodes than this are underutilized
    # Its `exclude` has the namespaces whose pods stay; `include` must be empty.
    evictable_namespaces: Namespaces | None = None
    # With OnlyThresholdingResources, only pods that request a thresholded resource are evicted.
    eviction_modes: tuple[Text, ...] = ()


def check(args: HighNodeUtilizationArgs) -> Iterator[InvalidInput]:
    yield from utilization.check_evictable(args.evictable_namespaces, "evictableNamespaces")
    yield from utilization.check_percentages(args.thresholds, "thresholds")
    if args.number_of_nodes < 0:
        yield InvalidInput("at least 0", args.number_of_nodes, "numberOfNodes")
    for index, mode in enumerate(args.eviction_modes):
        if mode != ONLY_THRESHOLDING:
            yield InvalidInput(ONLY_THRESHOLDING, mode, f"evictionModes[{index}]")


class HighNodeUtilization:
    """Evicts pods from underutilized nodes, beginning with the least used node, while other nodes have room."""

    name = NAME

    def __init__(self, args: HighNodeUtilizationArgs) -> None:
        self._args = args

    def balance(self, run: PluginRun) -> None:
        """No-op if at most `number_of_nodes` nodes are underutilized, if all are, or if all others are closed for new
        pods.
        """
        args = self._args
        found = utilization.usages(run.nodes, run.cluster, args.thresholds)
        low: list[utilization.NodeUsage] = []
        targets: list[utilization.NodeUsage] = []
        for each in found:
            if utilization.is_within(each, args.thresholds):
                low.append(each)
            elif not each.node.is_unschedulable:
                targets.append(each)
        if not low or len(low) <= args.number_of_nodes or len(low) == len(found) or not targets:
            return
        drain = utilization.Drain(
            run=run,
            available={name: sum(each.base(name) - each.used[name] for each in targets) for name in low[0].used},
            target_taints=[each.node.taints for each in targets],
            excluded=() if args.evictable_namespaces is None else args.evictable_namespaces.exclude,
            admits=self._admits,
            most_per_node=None,
            reason="node is underutilized by requests",
            thresholds=args.thresholds,
        )
        for source in sorted(low, key=utilization.NodeUsage.total):
            drain.from_node(source, lambda _: True)

    def _admits(self, pod: PodView) -> bool:
        """Whether a container of the pod requests a thresholded resource, if the arguments ask for that."""
        if ONLY_THRESHOLDING not in self._args.eviction_modes:
            return True
        spec = pod.object.spec
        return any(
            name in container.resources.requests
            for container in (*spec.containers, *spec.init_containers)
            for name in self._args.thresholds
        )


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.BALANCE}),
    decode=lambda raw: upstream_args(raw, HighNodeUtilizationArgs),
    arguments=HighNodeUtilizationArgs,
    check=check,
    make=lambda args, _: HighNodeUtilization(args),
)
