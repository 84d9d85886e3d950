"""Makes the profiles: which plugins, in which order, with which weights. source    scheduler-core spec, 4"""

from koord_scheduler.domain.cluster import Cluster, ProfileMaker
from koord_scheduler.domain.plugins.inter_pod_affinity import InterPodAffinity
from koord_scheduler.domain.plugins.node_affinity import NodeAffinity
from koord_scheduler.domain.plugins.node_name import NodeName
from koord_scheduler.domain.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from koord_scheduler.domain.plugins.node_resources_fit import FitArgs, NodeResourcesFit
from koord_scheduler.domain.plugins.node_unschedulable import NodeUnschedulable
from koord_scheduler.domain.plugins.pod_topology_spread import PodTopologySpread
from koord_scheduler.domain.plugins.taint_toleration import TaintToleration
from koord_scheduler.domain.profile import Profile


def default_profile(fit: FitArgs | None = None) -> ProfileMaker:
    """The shipped profile with the plugins that exist so far.

    source    scheduler-core spec, 4 (order of the default set, weights, pluginConfig)
    """
    args = fit or FitArgs()

    def make(cluster: Cluster) -> Profile:
        taints, affinity, resources = TaintToleration(), NodeAffinity(), NodeResourcesFit(args)
        spread = PodTopologySpread(cluster.nodes, cluster.population, cluster.owners)
        pods = InterPodAffinity(cluster.nodes, cluster.population)
        return Profile(
            filters=(NodeUnschedulable(), NodeName(), taints, affinity, cluster.ports, resources),
            scores=((taints, 3), (affinity, 2), (resources, 1), (NodeResourcesBalancedAllocation(), 1)),
            coupled_filters=(spread, pods),
            coupled_scores=((spread, 2), (pods, 2)),
            settings={
                "NodeResourcesFit": {
                    "strategy": args.strategy,
                    "resources": args.resources,
                    "shape": args.shape,
                    "ignoredResources": sorted(args.ignored_resources),
                    "ignoredResourceGroups": sorted(args.ignored_resource_groups),
                }
            },
        )

    return make
