"""Answers of an NRI plugin: the values that hooks computed for a container, as messages of the protocol.

Source: runtime spec, 7.1.
"""

from collections.abc import Mapping
from typing import Any

from koord_agent.domain.hook_stages.values import HookValues


def container_adjustment(values: HookValues) -> dict[str, Any]:
    """Return the fields of NRI's ContainerAdjustment message for the values of hooks, as nested dictionaries.

    Values that hooks did not set are left out, and so is an empty CPU list. An optional field, such as OptionalInt64,
    has its plain value.
    """
    devices = [
        {
            "path": device.path,
            "type": "c",
            "major": device.major,
            "minor": device.minor,
            "file_mode": device.file_mode,
        }
        for device in values.devices
    ]
    mounts = [
        {
            "destination": mount.destination,
            "type": "bind",
            "source": mount.source,
            "options": list(mount.options),
        }
        for mount in values.mounts
    ]
    linux = _present({"devices": devices, "resources": _resources(values)})
    envs = [{"key": key, "value": values.envs[key]} for key in sorted(values.envs)]
    return _present({"env": envs, "mounts": mounts, "linux": linux})


def container_updates(container_id: str, values: HookValues) -> list[dict[str, Any]]:
    """Return the fields of the ContainerUpdate messages for a container: one with its resources, or none.

    Args:
        container_id: Id of the container.
        values: Computed values; environment, mounts and devices of a running container do not change.
    """
    resources = _resources(values)
    return [{"container_id": container_id, "linux": {"resources": resources}}] if resources else []


def _resources(values: HookValues) -> dict[str, Any]:
    cpu = {"shares": values.cpu_shares, "quota": values.cfs_quota_us, "cpus": values.cpuset or None}
    resources = {
        "cpu": {key: value for key, value in cpu.items() if value is not None},
        "memory": {} if values.memory_limit_bytes is None else {"limit": values.memory_limit_bytes},
        "rdt_class": values.resctrl_group,
    }
    return _present(resources)


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not empty."""
    return {key: value for key, value in fields.items() if value}
