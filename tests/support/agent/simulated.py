"""One agent on a simulated node, without a log: it measures, and looks after the pods that it is told of."""

from collections.abc import Mapping
from dataclasses import replace

from koord_agent.domain.metrics.monitor import NodeMonitor
from koord_agent.domain.node.desired import view_of
from koord_agent.domain.node.pods import AgentPod
from koord_agent.settings import AgentSettings
from koord_agent.shell.node.measure import Measurement
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.shell.node.pods import PodControl
from koord_agent.simulator.host import SimulatedFleet
from koord_agent.simulator.nodes import SimulatedNode
from koordcore.ports.desired import DesiredNode

NODE = "n"
CAPACITY = {"cpu": 4_000, "memory": 8 << 30}


def simulated_agent(pods: Mapping[str, AgentPod]) -> tuple[SimulatedFleet, NodeAgent]:
    """A fleet of one node with 4 CPUs and 8 GiB, and its agent, which collects each second. `pods`: by uid."""
    fleet = SimulatedFleet([SimulatedNode(name=NODE, cpu_milli=CAPACITY["cpu"], memory_bytes=CAPACITY["memory"])])
    agent = NodeAgent(
        NODE,
        fleet.host(NODE),
        Measurement(monitor=NodeMonitor(collect_interval_ms=1_000)),
        interval_ms=1_000,
        settings=AgentSettings.model_validate({}),
        pods=PodControl(runner=fleet.host(NODE)),
    )
    agent.desired = replace(view_of(DesiredNode(node=NODE, capacity=CAPACITY, allocatable=CAPACITY)), pods=dict(pods))
    return fleet, agent
