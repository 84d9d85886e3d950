"""A node to simulate. The module is separate so that an agent of a real machine does not load the simulation."""

from dataclasses import dataclass

from koord_agent.domain.kernel.cgroup_layout import Driver


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """The description of a node to simulate.

    Attributes:
        name: Name of the node.
        cpu_milli: CPU of the whole node in milli-cores.
        memory_bytes: Memory of the whole node.
        gpus: Number of GPUs.
        gpu_model: Model of the GPUs; "" means unknown.
        gpu_memory_bytes: Memory of each GPU.
        rdma_functions: Virtual functions of the RDMA adapter at each PCIe switch with GPUs; 0: no adapters.
        driver: Cgroup driver.
    """

    name: str
    cpu_milli: int
    memory_bytes: int
    gpus: int = 0
    gpu_model: str = ""
    gpu_memory_bytes: int = 16 << 30
    rdma_functions: int = 0
    driver: Driver = Driver.SYSTEMD
