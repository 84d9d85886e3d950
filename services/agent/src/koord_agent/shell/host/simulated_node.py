"""A node to simulate. The module is separate so that an agent of a real machine does not load the simulation."""

from dataclasses import dataclass

from koord_agent.domain.kernel.cgroup_layout import Driver


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """A node to simulate."""

    name: str
    cpu_milli: int
    memory_bytes: int
    driver: Driver = Driver.SYSTEMD
