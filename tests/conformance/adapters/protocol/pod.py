"""Vectors about one pod: classification, admission, resource names."""

from __future__ import annotations

import copy
import json

from conformance.registry import Json, adapter
from koord_manager.domain.admission.colocation_profile import translate
from koordcore.protocol import keys
from koordcore.protocol.objects import Container, pod_from_json
from koordcore.protocol.pod_admission import validate_pod
from koordcore.protocol.priority import priority_class, priority_class_raw, priority_value
from koordcore.protocol.qos import kube_qos, qos, qos_raw
from koordcore.protocol.resource_names import (
    DEPRECATED_BATCH,
    DEPRECATED_DEVICE,
    parse_replace_resources,
    refresh_extended_resource_spec,
    rename_resources,
    replace_resources,
)
from koordcore.values.integers import parse_literal
from koordcore.values.invalid import InvalidInput


@adapter("protocol.qos_priority")
def qos_priority(given: dict[str, Json]) -> dict[str, Json]:
    """A pod -> every class and number it has (protocol spec, 2.2)."""
    pod = pod_from_json(given["pod"])
    answer: dict[str, Json] = {
        "qos_raw": str(qos_raw(pod) or ""),
        "kube_qos": str(kube_qos(pod)),
        "qos": str(qos(pod)),
        "priority_class_raw": str(priority_class_raw(pod) or ""),
        "priority_class": str(priority_class(pod)),
        "priority_value": priority_value(pod),
    }
    try:
        answer["sub_priority"] = parse_literal(pod.metadata.labels.get(keys.SUB_PRIORITY) or "0", 32)
    except InvalidInput:
        answer["sub_priority_error"] = True
    return answer


@adapter("protocol.qos_priority_admission")
def qos_priority_admission(given: dict[str, Json]) -> dict[str, Json]:
    """A pod to be created or updated -> verdict and broken rules (protocol spec, 2.3)."""
    old = pod_from_json(given["old_pod"]) if given.get("old_pod") and given["operation"] == "UPDATE" else None
    violations = validate_pod(
        pod_from_json(given["pod"]), old, skip_validating_priority=bool(given.get("skip_validating_priority"))
    )
    return {"allowed": not violations, "violations": [str(violation.rule) for violation in violations]}


@adapter("protocol.resource_rename", resource_lists=("resources",))
def resource_rename(given: dict[str, Json]) -> dict[str, Json]:
    """A resource list and a mapping -> the renamed list (protocol spec, 3.1)."""
    match given["mapping"]:
        case "deprecated-batch":
            return {"resources": rename_resources(given["resources"], DEPRECATED_BATCH)}
        case "deprecated-device":
            return {"resources": rename_resources(given["resources"], DEPRECATED_DEVICE)}
        case "replace-annotation":
            return {"resources": replace_resources(given["resources"], parse_replace_resources(given["annotation"]))}
        case other:
            raise ValueError(f"unknown mapping {other}")


def _by_name(containers: list[Container]) -> dict[str, Json]:
    return {
        container.name: {"requests": container.resources.requests, "limits": container.resources.limits}
        for container in containers
    }


@adapter("protocol.resource_translate", resource_lists=("requests", "limits", "overhead"))
def resource_translate(given: dict[str, Json]) -> dict[str, Json]:
    """A pod that a profile matched -> the pod after translation and its annotation (protocol spec, 3.2, 3.3)."""
    document = copy.deepcopy(given["pod"])
    changed = not given.get("skip_update_resources") and translate(document)
    pod = pod_from_json(document)
    fresh = refresh_extended_resource_spec(pod)
    stored = pod.metadata.annotations.get(keys.EXTENDED_RESOURCE_SPEC) if fresh is None else fresh
    return {
        "translated": changed,
        "containers": _by_name(pod.spec.containers),
        "init_containers": _by_name(pod.spec.init_containers),
        "overhead": pod.spec.overhead,
        "extended_resource_spec": None if stored is None else json.loads(stored),
        "spec_annotation_changed": fresh is not None,
    }
