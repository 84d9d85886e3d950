"""Values of hooks as messages of NRI, and the events of the container runtime that an NRI plugin may follow.

Source: runtime spec, 7.1, 7.2 (6).
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks.call import HookValues

DEFAULT_EVENTS: Final = ("RunPodSandbox", "RemovePodSandbox", "CreateContainer", "UpdateContainer")
_GROUPS: Final = {"pod": "pod", "podsandbox": "pod", "container": "container", "all": ""}
"""Name of a group -> text that the names of its events contain."""


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

    Environment, mounts and devices of a running container do not change.
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
    return {key: value for key, value in fields.items() if value}


class NriEvent(IntEnum):
    RUN_POD_SANDBOX = 1
    STOP_POD_SANDBOX = 2
    REMOVE_POD_SANDBOX = 3
    CREATE_CONTAINER = 4
    POST_CREATE_CONTAINER = 5
    START_CONTAINER = 6
    POST_START_CONTAINER = 7
    UPDATE_CONTAINER = 8
    POST_UPDATE_CONTAINER = 9
    STOP_CONTAINER = 10
    REMOVE_CONTAINER = 11
    UPDATE_POD_SANDBOX = 12
    POST_UPDATE_POD_SANDBOX = 13
    VALIDATE_CONTAINER_ADJUSTMENT = 14

    @property
    def mask(self) -> int:
        return 1 << (self - 1)


_BY_NAME: Final = {event.name.replace("_", "").lower(): event for event in NriEvent}


def event_mask(events: Iterable[str]) -> int:
    """Return the mask that selects events.

    Names may have commas between them, in any case. `pod`, `podsandbox`, `container` and `all` stand for groups of
    events.

    Raises:
        InvalidInput: A name is unknown.
    """
    mask = 0
    for name in (part.strip().lower() for each in events for part in each.split(",")):
        if name in _GROUPS:
            found = [event for key, event in _BY_NAME.items() if _GROUPS[name] in key]
        elif name in _BY_NAME:
            found = [_BY_NAME[name]]
        else:
            raise InvalidInput("the name of an NRI event", name, "events")
        for event in found:
            mask |= event.mask
    return mask
