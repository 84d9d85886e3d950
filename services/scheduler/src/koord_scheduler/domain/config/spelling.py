"""How configuration spells its names."""

from typing import Final

from pydantic.alias_generators import to_camel

_SPELLED: Final = {
    "default_cpu_bind_policy": "defaultCPUBindPolicy",
    "disable_device_numa_topology_alignment": "disableDeviceNUMATopologyAlignment",
}


def wire_name(attribute: str) -> str:
    """Kubernetes' name of an attribute: camelCase, acronyms as they are spelled there."""
    return _SPELLED.get(attribute) or (to_camel(attribute) if "_" in attribute else attribute)
