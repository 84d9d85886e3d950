"""The spelling of field names in configuration files of components: camelCase, with Kubernetes' acronyms."""

from typing import Final

from pydantic.alias_generators import to_camel

_SPELLED: Final = {
    "milli_cpu": "milliCPU",
    "num_gpu": "numGPU",
    "default_cpu_bind_policy": "defaultCPUBindPolicy",
    "disable_device_numa_topology_alignment": "disableDeviceNUMATopologyAlignment",
    "enable_pcie_level_exclusive": "enablePCIeLevelExclusive",
    "evict_qps": "evictQPS",
    "default_job_ttl": "defaultJobTTL",
    "ignore_pods_without_pdb": "ignorePodsWithoutPDB",
    "pods_with_pvc": "PodsWithPVC",
    "reserved_cpus": "reservedCPUs",
}


def wire_name(attribute: str) -> str:
    """Return Kubernetes' name of an attribute: camelCase, with acronyms as Kubernetes spells them."""
    return _SPELLED.get(attribute) or (to_camel(attribute) if "_" in attribute else attribute)
