"""A fleet of simulated machines, each behind the `Host` protocol."""

from collections.abc import Iterable

from koord_agent.shell.host.simulated_host import SimulatedHost
from koord_agent.shell.host.simulated_machines import SimulatedMachines
from koord_agent.shell.host.simulated_node import SimulatedNode


class SimulatedFleet(SimulatedMachines):
    """All simulated nodes of a process, each with a machine behind the protocol `Host`."""

    def __init__(self, nodes: Iterable[SimulatedNode], *, start_seconds: float = 0.0) -> None:
        """Create the machines.

        Args:
            nodes: Nodes with different names.
            start_seconds: Simulated time at which the machines start.
        """
        super().__init__(nodes, start_seconds=start_seconds)
        self._hosts = [SimulatedHost(self, index) for index in range(len(self.nodes))]

    def host(self, node: str) -> SimulatedHost:
        """Return the machine of one node.

        Raises:
            KeyError: The node is not simulated.
        """
        return self._hosts[self.index_of(node)]
