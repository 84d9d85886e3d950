"""Network domains of the cluster's nodes. Writer: schedulers. Aggregate: `clustertopology.default`.

Source:
    scheduler-core spec, 9; protocol spec, 9.8
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class TopologyDomain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A network domain above the nodes. The cluster has name "" and no parent.

    Attributes:
        children: Names of the domains below it, sorted; empty if its children are nodes.
        nodes: Number of nodes in it.
    """

    layer: str
    name: str = ""
    parent_layer: str = ""
    parent_name: str = ""
    child_layer: str = ""
    children: list[str] = []
    nodes: int = 0


@CATALOGUE.register(kind="clustertopology")
class ClusterTopologyComputed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """The status of the ClusterNetworkTopology (`status.detailStatus`) changed.

    Attributes:
        name: Name of the object.
        domains: Domains, parents before children, children by name.
    """

    name: str
    domains: list[TopologyDomain] = []
