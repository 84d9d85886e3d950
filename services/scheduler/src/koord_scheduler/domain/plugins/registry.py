"""The built-in plugins by name. This is the only module that imports them. They are made like installed plugins, from
the facts of the cluster and the arguments of a profile.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from koordcore.protocol.component_config import WireModel

from koord_scheduler.domain.config import koordinator_args, kubernetes_args
from koord_scheduler.domain.config.effective import EffectiveProfile
from koord_scheduler.domain.config.koordinator_args import LoadAwareSchedulingArgs
from koord_scheduler.domain.framework.cluster import Cluster
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.plugins.affinity.inter_pod_affinity import InterPodAffinity
from koord_scheduler.domain.plugins.affinity.node_affinity import NodeAffinity, NodeName
from koord_scheduler.domain.plugins.affinity.node_ports import NodePorts
from koord_scheduler.domain.plugins.affinity.pod_topology_spread import PodTopologySpread
from koord_scheduler.domain.plugins.affinity.scheduling_hint import SchedulingHint
from koord_scheduler.domain.plugins.affinity.taint_toleration import NodeUnschedulable, TaintToleration
from koord_scheduler.domain.plugins.books import books_of
from koord_scheduler.domain.plugins.default_preemption import DefaultPreemption
from koord_scheduler.domain.plugins.device.plugin import DeviceShare
from koord_scheduler.domain.plugins.device.repack_hold import GpuRepackHold
from koord_scheduler.domain.plugins.gang.plugin import Coscheduling
from koord_scheduler.domain.plugins.gang.topology_coscheduling import TopologyCoscheduling
from koord_scheduler.domain.plugins.loadaware.plugin import LoadAwareScheduling
from koord_scheduler.domain.plugins.numa.plugin import NodeNUMAResource
from koord_scheduler.domain.plugins.pod_gates import DynamicResources, SchedulingGates
from koord_scheduler.domain.plugins.quota.plugin import ElasticQuota
from koord_scheduler.domain.plugins.reservation.plugin import Reservation
from koord_scheduler.domain.plugins.resources.balanced_allocation import NodeResourcesBalancedAllocation
from koord_scheduler.domain.plugins.resources.fit import NodeResourcesFit
from koord_scheduler.domain.plugins.resources.fit_plus import NodeResourcesFitPlus, ScarceResourceAvoidance
from koord_scheduler.domain.plugins.resources.image_locality import ImageLocality
from koord_scheduler.domain.plugins.volumes.filters import NodeVolumeLimits, VolumeRestrictions, VolumeZone
from koord_scheduler.domain.plugins.volumes.volume_binding import VolumeBinding

_Args = TypeVar("_Args", bound=WireModel)
Maker = Callable[[Cluster, EffectiveProfile], Plugin]
"""A function that makes a plugin for one profile."""


def _once(name: str, made: Callable[[Cluster], Plugin]) -> Maker:
    """Return the maker of a plugin that all profiles share."""
    return lambda cluster, _: cluster.shared(name, None, lambda: made(cluster))


def _configured(made: Callable[[_Args], Plugin], args: type[_Args]) -> Maker:
    """Return the maker of a plugin that needs only its arguments. They have the name of the plugin and `Args`."""
    return lambda _, profile: made(profile.args_of(args.__name__.removesuffix("Args"), args))


def _load(cluster: Cluster, profile: EffectiveProfile) -> LoadAwareScheduling:
    args = profile.args_of("LoadAwareScheduling", LoadAwareSchedulingArgs)
    return cluster.shared("LoadAwareScheduling", args, lambda: LoadAwareScheduling(cluster.nodes, args))


def _devices(cluster: Cluster, profile: EffectiveProfile) -> DeviceShare:
    books = books_of(cluster)
    args = profile.args_of("DeviceShare", koordinator_args.DeviceShareArgs)
    return cluster.shared("DeviceShare", args, lambda: DeviceShare(cluster, books.devices, books.reservations, args))


def _gangs(cluster: Cluster, profile: EffectiveProfile) -> Coscheduling:
    books = books_of(cluster)
    args = profile.args_of("Coscheduling", koordinator_args.CoschedulingArgs)
    preempts = args.enable_preemption
    if not args.aware_network_topology:
        return cluster.shared("Coscheduling", (preempts, False), lambda: Coscheduling(books.gangs, preempts=preempts))
    return cluster.shared(
        "Coscheduling", (preempts, True), lambda: TopologyCoscheduling(cluster.nodes, books.gang, preempts=preempts)
    )


def _reservation(cluster: Cluster, profile: EffectiveProfile) -> Reservation:
    args = profile.args_of("Reservation", koordinator_args.ReservationArgs)
    return cluster.shared("Reservation", args, lambda: Reservation(cluster, books_of(cluster).reservations, args))


def _volumes(cluster: Cluster, profile: EffectiveProfile) -> VolumeBinding:
    seconds = profile.args_of("VolumeBinding", kubernetes_args.VolumeBindingArgs).bind_timeout_seconds
    return cluster.shared(
        "VolumeBinding", seconds, lambda: VolumeBinding(cluster.nodes, books_of(cluster).volumes, seconds)
    )


def _numa(cluster: Cluster, profile: EffectiveProfile) -> NodeNUMAResource:
    args, books = profile.args_of("NodeNUMAResource", koordinator_args.NodeNUMAResourceArgs), books_of(cluster)
    return NodeNUMAResource(cluster, books.numa, books.reservations, args)


MAKERS: Final[Mapping[str, Maker]] = {
    "SchedulingGates": lambda _, __: SchedulingGates(),
    "NodeUnschedulable": lambda _, __: NodeUnschedulable(),
    "NodeName": lambda _, __: NodeName(),
    "TaintToleration": lambda _, __: TaintToleration(),
    "NodeAffinity": lambda _, profile: NodeAffinity(
        profile.args_of("NodeAffinity", kubernetes_args.NodeAffinityArgs).added_affinity
    ),
    "NodePorts": _once("NodePorts", lambda cluster: NodePorts(books_of(cluster).reservations)),
    "NodeResourcesFit": lambda cluster, profile: NodeResourcesFit(
        profile.args_of("NodeResourcesFit", kubernetes_args.NodeResourcesFitArgs), books_of(cluster).reservations
    ),
    "NodeResourcesBalancedAllocation": _configured(
        NodeResourcesBalancedAllocation, kubernetes_args.NodeResourcesBalancedAllocationArgs
    ),
    "VolumeRestrictions": _once("VolumeRestrictions", lambda cluster: VolumeRestrictions(books_of(cluster).volumes)),
    "NodeVolumeLimits": _once("NodeVolumeLimits", lambda cluster: NodeVolumeLimits(books_of(cluster).volumes)),
    "VolumeBinding": _volumes,
    "VolumeZone": _once("VolumeZone", lambda cluster: VolumeZone(cluster.nodes, books_of(cluster).volumes)),
    "PodTopologySpread": lambda cluster, profile: PodTopologySpread(
        cluster.nodes,
        cluster.population,
        cluster.owners,
        profile.args_of("PodTopologySpread", kubernetes_args.PodTopologySpreadArgs),
    ),
    "InterPodAffinity": lambda cluster, profile: InterPodAffinity(
        cluster.nodes, cluster.population, profile.args_of("InterPodAffinity", kubernetes_args.InterPodAffinityArgs)
    ),
    "ImageLocality": _once("ImageLocality", lambda cluster: ImageLocality(cluster.nodes)),
    "DynamicResources": lambda _, __: DynamicResources(),
    "LoadAwareScheduling": _load,
    "DeviceShare": _devices,
    "NodeNUMAResource": _numa,
    "Reservation": _reservation,
    "Coscheduling": _gangs,
    "ElasticQuota": _once("ElasticQuota", lambda cluster: ElasticQuota(books_of(cluster).quota)),
    "DefaultPreemption": _configured(DefaultPreemption, kubernetes_args.DefaultPreemptionArgs),
    "SchedulingHint": _configured(SchedulingHint, koordinator_args.SchedulingHintArgs),
    "GpuRepackHold": _once("GpuRepackHold", lambda of: GpuRepackHold(of.nodes, books_of(of).reservations)),
    "NodeResourcesFitPlus": _configured(NodeResourcesFitPlus, koordinator_args.NodeResourcesFitPlusArgs),
    "ScarceResourceAvoidance": _configured(ScarceResourceAvoidance, koordinator_args.ScarceResourceAvoidanceArgs),
}
"""Name of a built-in plugin -> its maker."""
