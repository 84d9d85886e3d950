"""What plugins know of the cluster beside the nodes' own columns: one object that every profile's plugins share."""

from collections.abc import Callable

from koord_scheduler.domain.columns import NodeColumns
from koord_scheduler.domain.occupancy import Occupancy
from koord_scheduler.domain.plugins.node_ports import NodePorts
from koord_scheduler.domain.population import Population
from koord_scheduler.domain.profile import Profile
from koord_scheduler.domain.spread_defaults import OwnerSelectors
from koord_scheduler.domain.templates import Templates


class Cluster:
    """The facts.

    nodes        columns over nodes
    population   pods on nodes, by what constraints ask of them
    owners       selectors of services and controllers
    ports        host ports in use
    templates    what pods are to the plugins
    occupancy    takes and gives back what a pod counts for in all of these
    """

    def __init__(self) -> None:
        self.nodes = NodeColumns()
        self.population = Population(self.nodes)
        self.owners = OwnerSelectors()
        self.ports = NodePorts()
        self.templates = Templates(self.nodes, (self.ports,))
        self.occupancy = Occupancy(self.nodes, self.population, (self.ports,))


ProfileMaker = Callable[[Cluster], Profile]
"""Makes a profile whose plugins look at these facts."""
