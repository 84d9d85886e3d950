"""The catalogue of plugins: their names, extension points and arguments.

The catalogue is a value. Plugins that a user has installed are added before a configuration is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from koordcore.protocol.component_config import WireModel

from koord_scheduler.domain.config import koordinator_args as koordinator
from koord_scheduler.domain.config import kubernetes_args as kubernetes
from koord_scheduler.domain.config.koordinator_args import LoadAwareSchedulingArgs
from koord_scheduler.domain.framework.plugin import ExtensionPoint, Point


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPlugin:
    """The catalogue entry of a plugin that a configuration may name."""

    name: str
    points: frozenset[Point]  # Lists of the configuration in which it may be enabled
    args: type[WireModel] | None = None  # Type of its arguments; None if it takes none
    # Score weight in the default multiPoint set; 0 if it does not score there. None: it is not in the default set.
    default_weight: int | None = None


class DeclaringPlugin(Protocol):
    """A plugin class that declares its name and extension points as class attributes."""

    name: str
    extension_points: tuple[ExtensionPoint[Any], ...]


def known_plugin(
    plugin: type[DeclaringPlugin], args: type[WireModel] | None = None, *, elsewhere: Point = Point.PRE_FILTER
) -> KnownPlugin:
    """Return the catalogue entry of an installed plugin. It may be enabled in the lists of its extension points.
    `args`: type of its arguments; None if it takes none. `elsewhere`: list in which to enable a plugin whose extension
    points are all active wherever it runs.
    """
    points = frozenset(point.enabled_at for point in plugin.extension_points if point.enabled_at is not None)
    return KnownPlugin(name=plugin.name, points=points or frozenset({elsewhere}), args=args)


Catalogue = Mapping[str, KnownPlugin]
"""Plugins by name. Those with a default weight are in the order of the default multiPoint set."""

PRIORITY_SORT: Final = "PrioritySort"
COSCHEDULING: Final = "Coscheduling"
DEFAULT_PRE_BIND: Final = "DefaultPreBind"

_FILTERS: Final = (Point.PRE_FILTER, Point.FILTER)
_SCORES: Final = (Point.PRE_SCORE, Point.SCORE)
_ALL_FOUR: Final = (*_FILTERS, *_SCORES)


def _plugin(
    name: str, *points: Point, args: type[WireModel] | None = None, weight: int | None = None
) -> tuple[str, KnownPlugin]:
    return name, KnownPlugin(name=name, points=frozenset(points), args=args, default_weight=weight)


BUILT_IN: Final[Catalogue] = MappingProxyType(
    dict(
        (
            # the default multiPoint set, in order (scheduler-core spec, 4, rule 1)
            _plugin("SchedulingGates", Point.PRE_ENQUEUE, weight=0),
            _plugin(PRIORITY_SORT, Point.QUEUE_SORT, weight=0),
            _plugin("NodeUnschedulable", Point.FILTER, weight=0),
            _plugin("NodeName", Point.FILTER, weight=0),
            _plugin("TaintToleration", Point.FILTER, *_SCORES, weight=3),
            _plugin("NodeAffinity", *_ALL_FOUR, args=kubernetes.NodeAffinityArgs, weight=2),
            _plugin("NodePorts", *_FILTERS, weight=0),
            _plugin("NodeResourcesFit", *_ALL_FOUR, args=kubernetes.NodeResourcesFitArgs, weight=1),
            _plugin("VolumeRestrictions", *_FILTERS, weight=0),
            _plugin("NodeVolumeLimits", *_FILTERS, weight=0),
            _plugin(
                "VolumeBinding", *_FILTERS, Point.RESERVE, Point.PRE_BIND, args=kubernetes.VolumeBindingArgs, weight=0
            ),
            _plugin("VolumeZone", *_FILTERS, weight=0),
            _plugin("PodTopologySpread", *_ALL_FOUR, args=kubernetes.PodTopologySpreadArgs, weight=2),
            _plugin("InterPodAffinity", *_ALL_FOUR, args=kubernetes.InterPodAffinityArgs, weight=2),
            _plugin(
                "DynamicResources",
                Point.PRE_ENQUEUE,
                *_FILTERS,
                Point.POST_FILTER,
                Point.RESERVE,
                Point.PRE_BIND,
                weight=0,
            ),
            _plugin("DefaultPreemption", Point.POST_FILTER, args=kubernetes.DefaultPreemptionArgs, weight=0),
            _plugin(
                "NodeResourcesBalancedAllocation",
                *_SCORES,
                args=kubernetes.NodeResourcesBalancedAllocationArgs,
                weight=1,
            ),
            _plugin("ImageLocality", Point.SCORE, weight=1),
            _plugin("DefaultBinder", Point.BIND, weight=0),
            # Koordinator's own
            _plugin("LoadAwareScheduling", *_FILTERS, Point.SCORE, Point.RESERVE, args=LoadAwareSchedulingArgs),
            _plugin(
                "NodeNUMAResource", *_ALL_FOUR, Point.RESERVE, Point.PRE_BIND, args=koordinator.NodeNUMAResourceArgs
            ),
            _plugin("DeviceShare", *_ALL_FOUR, Point.RESERVE, Point.PRE_BIND, args=koordinator.DeviceShareArgs),
            _plugin(
                "Reservation",
                *_ALL_FOUR,
                Point.POST_FILTER,
                Point.RESERVE,
                Point.PRE_BIND,
                Point.BIND,
                args=koordinator.ReservationArgs,
            ),
            _plugin(
                COSCHEDULING,
                Point.PRE_ENQUEUE,
                Point.QUEUE_SORT,
                Point.PRE_FILTER,
                Point.POST_FILTER,
                *_SCORES,
                Point.RESERVE,
                Point.PERMIT,
                Point.PRE_BIND,
                Point.POST_BIND,
                args=koordinator.CoschedulingArgs,
            ),
            _plugin(
                "ElasticQuota", Point.PRE_FILTER, Point.POST_FILTER, Point.RESERVE, args=koordinator.ElasticQuotaArgs
            ),
            _plugin("SchedulingHint", Point.PRE_FILTER, args=koordinator.SchedulingHintArgs),
            _plugin("GpuRepackHold", Point.PRE_FILTER),
            _plugin(DEFAULT_PRE_BIND, Point.PRE_BIND),
            _plugin("NodeResourcesFitPlus", *_SCORES, args=koordinator.NodeResourcesFitPlusArgs),
            _plugin("ScarceResourceAvoidance", *_SCORES, args=koordinator.ScarceResourceAvoidanceArgs),
        )
    )
)
"""The plugins that come with the scheduler."""


def with_installed(installed: Mapping[str, KnownPlugin], catalogue: Catalogue = BUILT_IN) -> Catalogue:
    """With the installed plugins (name -> entry) at its end. Raises ValueError: one has the name of a built-in one."""
    taken = sorted(installed.keys() & catalogue.keys())
    if taken:
        raise ValueError(f"an installed plugin may not be called {', '.join(taken)}: that is built in")
    return MappingProxyType({**catalogue, **installed})
