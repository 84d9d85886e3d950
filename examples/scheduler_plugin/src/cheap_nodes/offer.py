"""What the scheduler asks of an installed package: what the plugin is called and takes, and how to make it."""

from koord_scheduler.domain.config.catalogue import known_plugin
from koord_scheduler.domain.config.effective import EffectiveProfile
from koord_scheduler.domain.framework.cluster import Cluster

from cheap_nodes.plugin import CheapNodes, CheapNodesArgs


class Offer:
    """`known` makes a configuration accept the plugin, `make` makes it for one profile."""

    known = known_plugin(CheapNodes, CheapNodesArgs)

    def make(self, cluster: Cluster, profile: EffectiveProfile) -> CheapNodes:
        """The plugin of one profile, over the facts that all plugins share."""
        return CheapNodes(cluster.nodes, profile.args_of(CheapNodes.name, CheapNodesArgs))


CHEAP_NODES = Offer()
