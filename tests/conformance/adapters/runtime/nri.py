"""Vectors of NRI mode: which events the agent follows, and what it answers about a container."""

from __future__ import annotations

from conformance.registry import Json, adapter
from koord_agent.domain.hooks.allocated_devices import BindMount, CharDevice
from koord_agent.domain.hooks.call import HookValues
from koord_agent.domain.hooks.nri import container_adjustment, container_updates, event_mask
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

Given = dict[str, Json]


@adapter("runtime.nri_adjust", exact_text=("cpus",), whole=("adjust", "updates"))
def nri_adjust(given: Given) -> Given:
    match given["op"]:
        case "event_mask":
            try:
                return {"mask": event_mask(given["events"] or ()), "error": False}
            except InvalidInput:
                return {"mask": None, "error": True}
        case "create_container":
            return {"adjust": container_adjustment(_values(given["result"]))}
        case "update_container":
            return {"updates": container_updates(given["container_id"], _values(given["result"]))}
        case op:
            raise AssertionError(f"unknown op {op}")


def _values(given: Given | None) -> HookValues:
    given = given or {}
    return HookValues(
        cpuset=given.get("cpuset"),
        cfs_quota_us=given.get("cfs_quota_us"),
        cpu_shares=given.get("cpu_shares"),
        memory_limit_bytes=given.get("memory_limit_bytes"),
        resctrl_group=given.get("resctrl_closid"),
        envs=given.get("envs") or {},
        mounts=codec.convert(given.get("mounts") or [], tuple[BindMount, ...]),
        devices=codec.convert(given.get("devices") or [], tuple[CharDevice, ...]),
    )
