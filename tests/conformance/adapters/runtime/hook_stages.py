"""Vectors of the hook framework: stages, registration, and the plug-ins that inject devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.adapters.runtime.topology_annotations import cpuset_rule
from conformance.registry import Json, adapter
from koord_agent.domain.hooks.allocated_devices import HAMI_LIBRARY, gpu_injection, rdma_devices
from koord_agent.domain.hooks.call import HookOptions, HookRules
from koord_agent.domain.hooks.plugins import (
    REGISTRATION_FILE,
    FailurePolicy,
    enabled_plugins,
    registration,
    run_stage,
    stages_of,
)
from koord_agent.domain.strategies.group_identity import BvtKernel, bvt_rule
from koord_agent.domain.strategies.pod_resources import is_suppressed_by_quota, normalization_ratio
from koord_agent.gates import GATES
from koord_agent.shell.hooks.hook_server import call_of_request, response_of
from koordcore.runtime_api.hooks import POD_CALLS, messages_of_call
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

_DEFAULT_ENDPOINT = "/var/run/koordlet/koordlet.sock"


def _gates(given: dict[str, Json]) -> Callable[[str], bool]:
    gates = {gate.name: gate.default for gate in GATES} | given.get("feature_gates", {})
    return lambda name: bool(gates[name])


@adapter("runtime.stage_pipeline", whole=("response_container_resources", "response_container_envs", "cgroup_writes"))
def stage_pipeline(given: dict[str, Json]) -> dict[str, Json]:
    is_on = _gates(given)
    rules = HookRules(
        bvt=bvt_rule(given.get("resource_qos_strategy")),
        bvt_kernel=BvtKernel(has_file=True),
        cpuset=cpuset_rule(given.get("topology_annotations")),
        ratio=normalization_ratio(given.get("node_annotations") or {}),
        be_unlimited=is_suppressed_by_quota(given.get("resource_threshold") or {}),
        options=HookOptions(
            be_by_manager=is_on("BECPUManager"), unsets_quota=not given.get("disable_unset_cpu_quota", False)
        ),
    )
    pod, rpc = given["pod"], given["stage"] + "Hook"
    meta = {"name": pod.get("name", ""), "namespace": pod.get("namespace", ""), "uid": pod.get("uid", "")}
    labels: Json = pod.get("labels") or {}
    annotations: Json = pod.get("annotations") or {}
    parent = pod["cgroup_parent"]
    if rpc in POD_CALLS:
        fields: dict[str, Any] = {"labels": labels, "annotations": annotations, "cgroup_parent": parent}
    else:
        fields = {
            "pod_labels": labels,
            "pod_annotations": annotations,
            "pod_cgroup_parent": parent,
            "container_meta": {"name": given.get("container_name") or ""},
            "container_envs": given.get("container_envs") or {},
        }
        if given.get("container_resources") is not None:
            fields["container_resources"] = given["container_resources"]
    request = messages_of_call(rpc)[0](pod_meta=meta, **fields)
    policy = FailurePolicy(given.get("plugin_failure_policy") or "Ignore")
    call = call_of_request(rpc, request, runtime="containerd")
    plugins = enabled_plugins(is_on, has_resctrl=given.get("resctrl_supported", False))
    result = run_stage(plugins, call, rules, policy)
    told: dict[str, Json] = {"called": [one.plugin for one in result.done], "failed_hook": result.failed or None}
    if rpc in POD_CALLS:
        values = result.values
        written = {
            "bvt": values.bvt,
            "cpu_shares": values.cpu_shares,
            "cfs_quota_us": values.cfs_quota_us,
            "memory_limit_bytes": values.memory_limit_bytes,
        }
        return {**told, "cgroup_writes": {name: value for name, value in written.items() if value is not None}}
    response = response_of(rpc, request, result.values)
    resources = {field.name: value for field, value in response.container_resources.ListFields()}
    envs = dict(response.container_envs)
    return {**told, "response_container_resources": resources, "response_container_envs": envs}


@adapter("runtime.registration")
def registration_file(given: dict[str, Json]) -> dict[str, Json]:
    plugins = enabled_plugins(_gates(given), has_resctrl=given.get("resctrl_supported", False))
    text = registration(
        stages_of(plugins),
        endpoint=given.get("host_endpoint", _DEFAULT_ENDPOINT),
        policy=FailurePolicy(given.get("failure_policy", "Ignore")),
        disabled=given.get("disable_stages", ()),
    )
    return {"file": REGISTRATION_FILE, "content": codec.decode(text, dict[str, Any])}


@adapter("runtime.gpu_env", whole=("envs",))
def gpu_env(given: dict[str, Json]) -> dict[str, Json]:
    try:
        found = gpu_injection(
            given["labels"],
            given["annotations"],
            pod_uid=given["pod_uid"],
            container=given["container_name"],
            library=given.get("hami_library_path") or HAMI_LIBRARY,
            is_monitored=_gates(given)("HamiCoreVGPUMonitor"),
        )
    except InvalidInput:
        return {"error": True}
    mounts = [
        {"destination": mount.destination, "type": "bind", "source": mount.source, "options": list(mount.options)}
        for mount in found.mounts
    ]
    return {"envs": dict(found.envs), "mounts": mounts, "host_dir": found.host_dir or None, "error": False}


class _Files:
    """The device nodes of a case."""

    def __init__(self, files: dict[str, Json]) -> None:
        self._files = files

    def character_device(self, path: str) -> tuple[int, int] | None:
        """See `DeviceFiles.character_device`."""
        found = self._files["char_devices"].get(path)
        return None if found is None else (found[0], found[1])

    def rdma_names(self, pci_address: str) -> list[str]:
        """See `DeviceFiles.rdma_names`."""
        return self._files["uverbs"].get(pci_address, [])


@adapter("runtime.rdma_env")
def rdma_env(given: dict[str, Json]) -> dict[str, Json]:
    try:
        found = rdma_devices(given["annotations"], _Files(given["fs"]))
    except InvalidInput:
        return {"devices": [], "error": True}
    devices = [
        {"path": one.path, "type": "c", "major": one.major, "minor": one.minor, "file_mode": one.file_mode}
        for one in found
    ]
    return {"devices": devices, "error": False}
