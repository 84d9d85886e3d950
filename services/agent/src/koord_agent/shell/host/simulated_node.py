"""A node to simulate, by itself: an agent of a real machine reads this without loading what simulates it."""

from dataclasses import dataclass

from koord_agent.domain.kernel.cgroup_layout import Driver


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """A node to simulate."""

    name: str
    cpu_milli: int
    memory_bytes: int
    driver: Driver = Driver.SYSTEMD
