"""The network's domains as the nodes span them. Writer: schedulers. Aggregate: `clustertopology.default`.

Source:
    scheduler-core spec, 9; protocol spec, 9.8
"""

import msgspec

from koordcore.events.envelope import Event
from koordcore.events.registry import CATALOGUE


class TopologyDomain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A domain that is no node. The cluster has name "" and no parent.

    Attributes:
        children: Names of the domains below it, sorted; empty when these are nodes.
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
    """`status.detailStatus` of the ClusterNetworkTopology, whenever it differs from what was said last.

    Attributes:
        name: Of the object.
        domains: Parents before children, children by name.
    """

    name: str
    domains: list[TopologyDomain] = []
