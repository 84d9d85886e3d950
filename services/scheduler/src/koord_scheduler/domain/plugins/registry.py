"""The built-in plugins by name. This is the only module that imports them.

They are made like installed plugins, from the facts of the cluster and the arguments of a profile.
"""

from collections.abc import Callable, Mapping
from typing import Final

from koord_scheduler.domain.config.args import fine_grained, koordinator, kubernetes
from koord_scheduler.domain.config.args.load_aware import LoadAwareSchedulingArgs
from koord_scheduler.domain.config.effective import EffectiveProfile
from koord_scheduler.domain.facts.cluster import Cluster
from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.plugins.affinity.inter_pod_affinity import InterPodAffinity
from koord_scheduler.domain.plugins.affinity.node_affinity import NodeAffinity
from koord_scheduler.domain.plugins.affinity.node_name import NodeName
from koord_scheduler.domain.plugins.affinity.node_ports import NodePorts
from koord_scheduler.domain.plugins.affinity.node_unschedulable import NodeUnschedulable
from koord_scheduler.domain.plugins.affinity.pod_topology_spread import PodTopologySpread
from koord_scheduler.domain.plugins.affinity.scheduling_hint import SchedulingHint
from koord_scheduler.domain.plugins.affinity.taint_toleration import TaintToleration
from koord_scheduler.domain.plugins.jobs.coscheduling import Coscheduling
from koord_scheduler.domain.plugins.jobs.default_preemption import DefaultPreemption
from koord_scheduler.domain.plugins.jobs.elastic_quota import ElasticQuota
from koord_scheduler.domain.plugins.jobs.gpu_repack_hold import GpuRepackHold
from koord_scheduler.domain.plugins.jobs.scheduling_gates import SchedulingGates
from koord_scheduler.domain.plugins.jobs.topology_coscheduling import TopologyCoscheduling
from koord_scheduler.domain.plugins.numa.node_numa_resource import NodeNUMAResource
from koord_scheduler.domain.plugins.reservation.reservation import Reservation
from koord_scheduler.domain.plugins.resources.device_share import DeviceShare
from koord_scheduler.domain.plugins.resources.dynamic_resources import DynamicResources
from koord_scheduler.domain.plugins.resources.image_locality import ImageLocality
from koord_scheduler.domain.plugins.resources.load_aware_scheduling import LoadAwareScheduling
from koord_scheduler.domain.plugins.resources.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from koord_scheduler.domain.plugins.resources.node_resources_fit import NodeResourcesFit
from koord_scheduler.domain.plugins.resources.node_resources_fit_plus import NodeResourcesFitPlus
from koord_scheduler.domain.plugins.resources.scarce_resource_avoidance import ScarceResourceAvoidance
from koord_scheduler.domain.plugins.volumes.node_volume_limits import NodeVolumeLimits
from koord_scheduler.domain.plugins.volumes.volume_binding import VolumeBinding
from koord_scheduler.domain.plugins.volumes.volume_restrictions import VolumeRestrictions
from koord_scheduler.domain.plugins.volumes.volume_zone import VolumeZone

Maker = Callable[[Cluster, EffectiveProfile], Plugin]
"""A function that makes a plugin for one profile."""


def _load(cluster: Cluster, profile: EffectiveProfile) -> LoadAwareScheduling:
    args = profile.args_of("LoadAwareScheduling", LoadAwareSchedulingArgs)
    return cluster.shared("LoadAwareScheduling", args, lambda: LoadAwareScheduling(cluster.nodes, args))


def _devices(cluster: Cluster, profile: EffectiveProfile) -> DeviceShare:
    args = profile.args_of("DeviceShare", fine_grained.DeviceShareArgs)
    return cluster.shared("DeviceShare", args, lambda: DeviceShare(cluster, args))


def _gangs(cluster: Cluster, profile: EffectiveProfile) -> Coscheduling:
    args = profile.args_of("Coscheduling", koordinator.CoschedulingArgs)
    preempts = args.enable_preemption
    if not args.aware_network_topology:
        return cluster.shared("Coscheduling", (preempts, False), lambda: Coscheduling(cluster.gangs, preempts=preempts))
    return cluster.shared("Coscheduling", (preempts, True), lambda: TopologyCoscheduling(cluster, preempts=preempts))


def _reservation(cluster: Cluster, profile: EffectiveProfile) -> Reservation:
    args = profile.args_of("Reservation", fine_grained.ReservationArgs)
    return cluster.shared("Reservation", args, lambda: Reservation(cluster, args))


def _volumes(cluster: Cluster, profile: EffectiveProfile) -> VolumeBinding:
    seconds = profile.args_of("VolumeBinding", kubernetes.VolumeBindingArgs).bind_timeout_seconds
    return cluster.shared("VolumeBinding", seconds, lambda: VolumeBinding(cluster.nodes, cluster.volumes, seconds))


MAKERS: Final[Mapping[str, Maker]] = {
    "SchedulingGates": lambda _, __: SchedulingGates(),
    "NodeUnschedulable": lambda _, __: NodeUnschedulable(),
    "NodeName": lambda _, __: NodeName(),
    "TaintToleration": lambda _, __: TaintToleration(),
    "NodeAffinity": lambda _, profile: NodeAffinity(
        profile.args_of("NodeAffinity", kubernetes.NodeAffinityArgs).added_affinity
    ),
    "NodePorts": lambda cluster, _: cluster.shared("NodePorts", None, lambda: NodePorts(cluster.reservations)),
    "NodeResourcesFit": lambda cluster, profile: NodeResourcesFit(
        profile.args_of("NodeResourcesFit", kubernetes.NodeResourcesFitArgs), cluster.reservations
    ),
    "NodeResourcesBalancedAllocation": lambda _, profile: NodeResourcesBalancedAllocation(
        profile.args_of("NodeResourcesBalancedAllocation", kubernetes.NodeResourcesBalancedAllocationArgs)
    ),
    "VolumeRestrictions": lambda cluster, _: cluster.shared(
        "VolumeRestrictions", None, lambda: VolumeRestrictions(cluster.volumes)
    ),
    "NodeVolumeLimits": lambda cluster, _: cluster.shared(
        "NodeVolumeLimits", None, lambda: NodeVolumeLimits(cluster.volumes)
    ),
    "VolumeBinding": _volumes,
    "VolumeZone": lambda cluster, _: cluster.shared(
        "VolumeZone", None, lambda: VolumeZone(cluster.nodes, cluster.volumes)
    ),
    "PodTopologySpread": lambda cluster, profile: PodTopologySpread(
        cluster.nodes,
        cluster.population,
        cluster.owners,
        profile.args_of("PodTopologySpread", kubernetes.PodTopologySpreadArgs),
    ),
    "InterPodAffinity": lambda cluster, profile: InterPodAffinity(
        cluster.nodes, cluster.population, profile.args_of("InterPodAffinity", kubernetes.InterPodAffinityArgs)
    ),
    "ImageLocality": lambda cluster, _: cluster.shared("ImageLocality", None, lambda: ImageLocality(cluster.nodes)),
    "DynamicResources": lambda _, __: DynamicResources(),
    "LoadAwareScheduling": _load,
    "DeviceShare": _devices,
    "NodeNUMAResource": lambda cluster, profile: NodeNUMAResource(
        cluster, profile.args_of("NodeNUMAResource", fine_grained.NodeNUMAResourceArgs)
    ),
    "Reservation": _reservation,
    "Coscheduling": _gangs,
    "ElasticQuota": lambda cluster, _: cluster.shared(
        "ElasticQuota", None, lambda: ElasticQuota(cluster.quotas, cluster.quota_changes)
    ),
    "DefaultPreemption": lambda _, profile: DefaultPreemption(
        profile.args_of("DefaultPreemption", kubernetes.DefaultPreemptionArgs)
    ),
    "SchedulingHint": lambda _, profile: SchedulingHint(
        profile.args_of("SchedulingHint", koordinator.SchedulingHintArgs)
    ),
    "GpuRepackHold": lambda cluster, _: cluster.shared(
        "GpuRepackHold", None, lambda: GpuRepackHold(cluster.nodes, cluster.reservations)
    ),
    "NodeResourcesFitPlus": lambda _, profile: NodeResourcesFitPlus(
        profile.args_of("NodeResourcesFitPlus", koordinator.NodeResourcesFitPlusArgs)
    ),
    "ScarceResourceAvoidance": lambda _, profile: ScarceResourceAvoidance(
        profile.args_of("ScarceResourceAvoidance", koordinator.ScarceResourceAvoidanceArgs)
    ),
}
"""Name of a built-in plugin -> its maker."""
