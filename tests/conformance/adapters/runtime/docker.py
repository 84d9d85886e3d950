"""Vectors of the CRI proxy's Docker mode: what it translates between the Docker API and CRI."""

from __future__ import annotations

from typing import cast

from conformance.registry import Json, adapter
from koord_criproxy.docker.api import (
    HOST_CONFIG_FIELDS,
    UPDATE_FIELDS,
    cgroup_to_cri,
    cgroup_to_docker,
    is_sandbox,
    merge_update,
    parse_name,
    resources_of_config,
    route,
    split_envs,
    split_labels,
    with_resources,
)
from koord_criproxy.records import Resources, readable_envs
from koordcore.values import codec

Given = dict[str, Json]


@adapter("runtime.docker_translate", exact_text=("CpusetCpus", "CpusetMems", "cpuset_cpus", "cpuset_mems"))
def docker_translate(given: Given) -> Given:
    match given["op"]:
        case "cgroup_to_cri":
            return {"path": cgroup_to_cri(given["cgroup_driver"], given["cgroup_parent"])}
        case "cgroup_to_docker":
            return {"cgroup_parent": cgroup_to_docker(given["cgroup_driver"], given["cgroup_parent"])}
        case "split_labels":
            labels, annotations = split_labels(given["labels"] or {})
            return {"labels": labels, "annotations": annotations}
        case "resource_type":
            return {"type": "pod" if is_sandbox(given["labels"] or {}) else "container"}
        case "env_split":
            return {"env": readable_envs(split_envs(given["env"] or ()))}
        case "route":
            found = route(given["path"], given.get("method", "POST"))
            return {"handler": found.handler.value, "container_id": found.container_id}
        case "name":
            return _name(given["name"])
        case "host_config_to_resources":
            return {"resources": _shown(resources_of_config(given["host_config"] or {}))}
        case "apply_to_host_config":
            return {"config": with_resources(given["config"], _resources(given["resources"]), HOST_CONFIG_FIELDS)}
        case "apply_to_update_config":
            return {"config": with_resources(given["config"], _resources(given["resources"]), UPDATE_FIELDS)}
        case "merge_update_config":
            cached: Given | None = given["resources"]
            return {"resources": _shown(merge_update(None if cached is None else _resources(cached), given["config"]))}
        case op:
            raise AssertionError(f"unknown op {op}")


def _name(name: str) -> Given:
    found = parse_name(name)
    if found is None:
        return {"kubernetes": False}
    return {
        "kubernetes": True,
        "container": found.container,
        "pod": found.pod,
        "namespace": found.namespace,
        "uid": found.uid,
        "attempt": found.attempt,
    }


def _resources(given: Given | None) -> Resources:
    return codec.convert(given or {}, Resources)


def _shown(resources: Resources) -> Given:
    return cast("Given", codec.to_builtins(resources))
