"""Plugins that a test makes up, enabled at the points for which they have a method."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
from koord_scheduler.configuration import known_plugins, load_configuration
from koord_scheduler.domain.config.catalogue import KnownPlugin
from koord_scheduler.domain.config.effective import EffectiveConfiguration, EffectiveProfile, effective_configuration
from koord_scheduler.domain.engine.frameworks import Frameworks
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.framework.extension_points import EXTENSION_POINTS, READ_SHAPE
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.framework.plugin import ExtensionPoint, Point
from koord_scheduler.domain.loop.profiles import frameworks_of
from koord_scheduler.domain.loop.state.known_state import Settings
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.loadaware.plugin import LoadAwareScheduling
from koordcore.events.explanations import PodUnschedulable
from koordcore.protocol.objects import Node, Pod
from support.scheduler.scheduling import Scheduler, SmallLog, node

ELSEWHERE: Final = Point.PRE_FILTER
"""Here a plugin is enabled that has no extension point of its own in the configuration."""


class MadeUp:
    """A plugin that knows the nodes by row."""

    name = "MadeUp"
    extension_points: tuple[ExtensionPoint[Any], ...] = ()

    def __init_subclass__(cls) -> None:
        """Declare every extension point for which the class has all that it asks for."""
        cls.extension_points = tuple(
            point
            for point in EXTENSION_POINTS
            if point is not READ_SHAPE and all(hasattr(cls, member) for member in point.members)
        )

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}

    def put_node(self, row: int, node: Node) -> None:
        """See `Cluster.put_node`."""
        self.nodes[row] = node

    def drop_node(self, row: int) -> None:
        """See `Cluster.drop_node`."""
        del self.nodes[row]

    def row(self, name: str) -> int:
        """The row of a node that there is."""
        return next(row for row, each in self.nodes.items() if each.metadata.name == name)


def points_of(plugin: type[MadeUp]) -> frozenset[Point]:
    """Where a configuration enables the plugin."""
    return frozenset(point.enabled_at or ELSEWHERE for point in plugin.extension_points)


def configuration_with(plugins: Sequence[type[MadeUp]], built_in: Sequence[str] = ()) -> EffectiveConfiguration:
    """The base plugins of Kubernetes, and these in this order at each of their points.

    built_in    filters and scores of ours that are enabled, too
    """
    points = {one.name: points_of(one) for one in plugins}
    enabled = {point: [one.name for one in plugins if point in points[one.name]] for point in Point}
    for point in (Point.FILTER, Point.SCORE):
        enabled[point] = [*built_in, *enabled[point]]
    profile = {
        "schedulerName": "koord-scheduler",
        "plugins": {
            point: {"enabled": [{"name": name} for name in names]} for point, names in enabled.items() if names
        },
    }
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    known = {one.name: KnownPlugin(name=one.name, points=points[one.name]) for one in plugins}
    return effective_configuration(msgspec.json.encode(document), {**known_plugins(), **known})


def shipped_with(log: SmallLog, plugin: type[MadeUp]) -> Scheduler:
    """A scheduler with the shipped profile, and this plugin last at each of its points."""
    [shipped] = load_configuration(None).profiles
    points = {
        point: (*names, plugin.name) if point in points_of(plugin) else names for point, names in shipped.points.items()
    }
    profile = replace(shipped, points=points, weights={**shipped.weights, plugin.name: 1})
    scheduler = Scheduler(log)
    configuration = replace(load_configuration(None), profiles=(profile,))
    scheduler.state = SchedulerState(frameworks_of(configuration, more={plugin.name: lambda _, __: plugin()}))
    return scheduler


def shipped_without(log: SmallLog, *names: str) -> Scheduler:
    """A scheduler with the shipped profile without these plugins."""
    [shipped] = load_configuration(None).profiles
    points = {point: tuple(each for each in those if each not in names) for point, those in shipped.points.items()}
    scheduler = Scheduler(log)
    configuration = replace(load_configuration(None), profiles=(replace(shipped, points=points),))
    scheduler.state = SchedulerState(frameworks_of(configuration))
    return scheduler


def frameworks_with(
    *plugins: type[MadeUp], gates: SchedulerGates | None = None, built_in: Sequence[str] = ()
) -> Frameworks:
    """The profile with these plugins."""

    def maker(plugin: type[MadeUp]) -> Any:
        def make(_: Cluster, __: EffectiveProfile) -> MadeUp:
            return plugin()

        return make

    configuration = configuration_with(plugins, built_in)
    return frameworks_of(configuration, gates, more={one.name: maker(one) for one in plugins})


def scheduler_with(
    log: SmallLog,
    *plugins: type[MadeUp],
    gates: SchedulerGates | None = None,
    settings: Settings | None = None,
    built_in: Sequence[str] = (),
) -> Scheduler:
    """A scheduler with these plugins."""
    scheduler = Scheduler(log)
    scheduler.state = SchedulerState(frameworks_with(*plugins, gates=gates, built_in=built_in), settings)
    return scheduler


def load_of(state: SchedulerState) -> dict[str, list[str]]:
    """The pods that LoadAwareScheduling knows, by node."""
    [plugin] = [each for each in state.cluster.node_followers if isinstance(each, LoadAwareScheduling)]
    rows = ((name, state.nodes.row(name)) for name in state.nodes.node_names())
    loads = ((name, plugin.load.node_load(row)) for name, row in rows if row is not None)
    return {name: [each.uid for each in load.pods] for name, load in loads if load is not None}


def cluster(*names: str, **more: Any) -> SmallLog:
    """A log with these nodes, each labelled with its name."""
    log = SmallLog()
    for name in names:
        log.add_node(node(name, labels={"name": name}, **more))
    return log


def node_of(scheduler: Scheduler, wanted: Pod, now: float = 0.0) -> str:
    """Where a pod goes that is submitted; "" nowhere."""
    scheduler.log.add_pod(wanted)
    scheduler.run(now)
    return scheduler.state.pods[wanted.metadata.uid].node


def refusal(scheduler: Scheduler) -> PodUnschedulable:
    """What the last pod that found no node was told."""
    event = scheduler.explanations[-1].event
    assert isinstance(event, PodUnschedulable)
    return event


def asking(pod: Pod, requests: dict[str, str]) -> Pod:
    """A pod of one container with these requests."""
    [container] = pod.spec.containers
    resources = msgspec.structs.replace(container.resources, requests=requests)
    containers = [msgspec.structs.replace(container, resources=resources)]
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers))
