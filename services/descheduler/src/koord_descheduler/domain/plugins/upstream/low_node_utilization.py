"""LowNodeUtilization: evict pods from overutilized nodes, so that underutilized nodes can take them.

Utilization is by requests or, with `metricsUtilization`, by measured usage.

Source:
    descheduler spec, 10.8
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from koordcore.events.descheduling import ClassifiedNodes
from koordcore.protocol.component_config import NotNegative, WireModel
from koordcore.values.invalid import InvalidInput
from pydantic import StrictBool, StrictInt

from koord_descheduler.domain.config.arguments import Namespaces, upstream_args
from koord_descheduler.domain.framework.plugin import PluginRun, Point
from koord_descheduler.domain.framework.registry import PluginKind
from koord_descheduler.domain.plugins.upstream import utilization

NAME: Final = "LowNodeUtilization"


class EvictionLimits(WireModel):
    """Largest number of evictions per node and round; None: no limit."""

    node: NotNegative | None = None


class LowNodeUtilizationArgs(WireModel):
    use_deviation_thresholds: StrictBool = False  # Whether both are deviations from the mean of nodes with the resource
    thresholds: utilization.Percentages = {}  # Percentages up to which a node is underutilized, in all resources
    target_thresholds: utilization.Percentages = {}  # Percentages above which a node is overutilized, in any resource
    number_of_nodes: StrictInt = 0  # The plugin evicts only if more nodes than this are underutilized
    # Its `exclude` has the namespaces whose pods stay; `include` must be empty.
    evictable_namespaces: Namespaces | None = None
    eviction_limits: EvictionLimits | None = None  # Largest number of evictions per node; None: no limit
    # Source of measured usage; None: usage is the sum of requests.
    metrics_utilization: utilization.MetricsUtilization | None = None


def check(args: LowNodeUtilizationArgs) -> Iterator[InvalidInput]:
    yield from utilization.check_evictable(args.evictable_namespaces, "evictableNamespaces")
    yield from utilization.check_percentages(args.thresholds, "thresholds")
    yield from utilization.check_percentages(args.target_thresholds, "targetThresholds")
    if args.thresholds.keys() != args.target_thresholds.keys():
        yield InvalidInput(
            f"the resources of thresholds: {', '.join(sorted(args.thresholds))}",
            sorted(args.target_thresholds),
            "targetThresholds",
        )
    if not args.use_deviation_thresholds:
        for name, percent in args.thresholds.items():
            if percent > args.target_thresholds.get(name, percent):
                rule = f"at most targetThresholds[{name}] ({args.target_thresholds[name]})"
                yield InvalidInput(rule, percent, f"thresholds[{name}]")
    if args.number_of_nodes < 0:
        yield InvalidInput("at least 0", args.number_of_nodes, "numberOfNodes")
    yield from utilization.check_metrics(args.metrics_utilization, args.thresholds)


class LowNodeUtilization:
    """Evicts pods from overutilized nodes, beginning with the most used node, while underutilized nodes have room."""

    name = NAME

    def __init__(self, args: LowNodeUtilizationArgs) -> None:
        self._args = args

    def balance(self, run: PluginRun) -> None:
        """No-op if no node is overutilized, at most `number_of_nodes` nodes are underutilized, or all are.

        Nodes that are closed for new pods do not count as underutilized. Measured usage leaves out nodes without a
        fresh report.
        """
        args = self._args
        by_requests = args.metrics_utilization is None
        if by_requests:
            found = utilization.usages(run.nodes, run.cluster, args.thresholds)
        else:
            found = utilization.measured_usages(run.nodes, run.cluster)
        thresholds, targets = self._bounds(found)
        low = [each for each in found if not each.node.is_unschedulable and utilization.is_within(each, thresholds)]
        names = {each.node.name for each in low}
        high = [each for each in found if each.node.name not in names and not utilization.is_within(each, targets)]
        run.classified.append(
            ClassifiedNodes(
                plugin=NAME,
                nodes=len(found),
                low=dict(thresholds),
                high=dict(targets),
                by_requests=by_requests,
                under=[each.node.name for each in low],
                over=[each.node.name for each in high],
                acted_on=[each.node.name for each in high],
            )
        )
        if not low or len(low) <= args.number_of_nodes or len(low) == len(found) or not high:
            return
        room = {name: sum(_limit(each, name, targets) - each.used[name] for each in low) for name in low[0].used}
        drain = utilization.Drain(
            run=run,
            available=room,
            target_taints=[each.node.taints for each in low],
            excluded=() if args.evictable_namespaces is None else args.evictable_namespaces.exclude,
            admits=lambda _: True,
            most_per_node=None if args.eviction_limits is None else args.eviction_limits.node,
            reason=f"node is overutilized by {'requests' if by_requests else 'measured usage'}",
            thresholds=targets,
        )
        for source in sorted(high, key=utilization.NodeUsage.total, reverse=True):
            limits = {name: _limit(source, name, targets) for name in source.used}
            drain.from_node(source, lambda now, limits=limits: any(now.used[name] > limits[name] for name in limits))

    def _bounds(self, found: Sequence[utilization.NodeUsage]) -> tuple[Mapping[str, float], Mapping[str, float]]:
        args = self._args
        if not args.use_deviation_thresholds or not found:
            return args.thresholds, args.target_thresholds
        means = {name: _mean([_counted(each, name) for each in found if each.has(name)]) for name in args.thresholds}
        return (
            {name: _clamped(means[name] - percent) for name, percent in args.thresholds.items()},
            {name: _clamped(means[name] + percent) for name, percent in args.target_thresholds.items()},
        )


def _counted(usage: utilization.NodeUsage, name: str) -> float:
    # a node that reports more than it has must not make the mean of the others
    percent = usage.percent(name)
    return percent if usage.metric is None else min(percent, 100.0)


def _mean(percents: Sequence[float]) -> float:
    return sum(percents) / len(percents) if percents else 0.0


def _clamped(percent: float) -> float:
    return min(max(percent, 0.0), 100.0)


def _limit(usage: utilization.NodeUsage, name: str, targets: Mapping[str, float]) -> int:
    """The amount up to which a node may be used: the target percentage, or everything without a target."""
    return int(targets[name] * 0.01 * usage.base(name)) if name in targets else usage.base(name)


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.BALANCE}),
    decode=lambda raw: upstream_args(raw, LowNodeUtilizationArgs),
    arguments=LowNodeUtilizationArgs,
    check=check,
    make=lambda args, _: LowNodeUtilization(args),
)
