"""What an NRI plugin answers: the values that hooks computed for a container, in the form of the protocol.

Source: runtime spec, 7.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BindMount:
    """A mount that is added to a container.

    Attributes:
        destination: Path in the container.
        source: Path on the node.
        type: Type of the file system, or `bind`.
        options: Mount options.
    """

    destination: str
    source: str
    type: str = "bind"
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device that is added to a container.

    Attributes:
        path: Path of the device, on the node and in the container.
        type: `c` for a character device, `b` for a block device.
        major: Major number.
        minor: Minor number.
        file_mode: Permission bits.
    """

    path: str
    type: str
    major: int
    minor: int
    file_mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerValues:
    """Values that hooks computed for a container. None and empty mean that a value was not computed.

    Attributes:
        cpuset: CPU list. An empty list is not sent.
        cfs_quota_us: CFS quota in microseconds; -1 means no limit.
        cpu_shares: Relative weight for CPU time.
        memory_limit_bytes: Memory limit in bytes; -1 means no limit.
        resctrl_closid: Name of the resctrl group.
        envs: Environment variables that are added or replaced.
        mounts: Mounts that are added.
        devices: Devices that are added.
    """

    cpuset: str | None = None
    cfs_quota_us: int | None = None
    cpu_shares: int | None = None
    memory_limit_bytes: int | None = None
    resctrl_closid: str | None = None
    envs: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: tuple[BindMount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()


def container_adjustment(values: ContainerValues) -> dict[str, Any]:
    """Return the fields of a ContainerAdjustment message: only what was computed.

    Optional wrappers are plain values.
    """
    devices = [
        {
            "path": device.path,
            "type": device.type,
            "major": device.major,
            "minor": device.minor,
            "file_mode": device.file_mode,
        }
        for device in values.devices
    ]
    mounts = [
        {
            "destination": mount.destination,
            "type": mount.type,
            "source": mount.source,
            "options": list(mount.options),
        }
        for mount in values.mounts
    ]
    linux = _present({"devices": devices, "resources": _resources(values)})
    envs = [{"key": key, "value": values.envs[key]} for key in sorted(values.envs)]
    return _present({"env": envs, "mounts": mounts, "linux": linux})


def container_updates(container_id: str, values: ContainerValues) -> list[dict[str, Any]]:
    """Return the fields of the ContainerUpdate messages for a container: one with its resources, or none.

    Args:
        container_id: Id of the container.
        values: Computed values; environment, mounts and devices of a running container do not change.
    """
    resources = _resources(values)
    return [{"container_id": container_id, "linux": {"resources": resources}}] if resources else []


def _resources(values: ContainerValues) -> dict[str, Any]:
    cpu = {"shares": values.cpu_shares, "quota": values.cfs_quota_us, "cpus": values.cpuset or None}
    resources = {
        "cpu": {key: value for key, value in cpu.items() if value is not None},
        "memory": {} if values.memory_limit_bytes is None else {"limit": values.memory_limit_bytes},
        "rdt_class": values.resctrl_closid,
    }
    return _present(resources)


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not empty."""
    return {key: value for key, value in fields.items() if value}
