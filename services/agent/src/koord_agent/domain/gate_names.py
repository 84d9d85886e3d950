"""Names of the feature gates that rules of the agent use. `config.gates` lists all gates with their defaults."""

from typing import Final

BE_CPU_SUPPRESS: Final = "BECPUSuppress"
CPU_BURST: Final = "CPUBurst"
RDT_RESCTRL: Final = "RdtResctrl"
BE_CPU_MANAGER: Final = "BECPUManager"
CGROUP_RECONCILE: Final = "CgroupReconcile"
BLKIO_RECONCILE: Final = "BlkIOReconcile"
SYSTEM_CONFIG: Final = "SystemConfig"
GROUP_IDENTITY: Final = "GroupIdentity"
CORE_SCHED: Final = "CoreSched"
CPUSET_ALLOCATOR: Final = "CPUSetAllocator"
