"""Clusters to deschedule: pods that run, wait, crash or have failed, most of them owned, on nodes that differ."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from koordcore.protocol.objects import pod_from_json
from koordcore.protocol.pod_defaults import with_pod_defaults
from koordcore.protocol.qos import kube_qos
from koordcore.values.timestamps import rfc3339
from support.oracle.drawing.cases import namespace, node
from support.oracle.drawing.constraints import selector
from support.oracle.drawing.dice import NAMESPACES, Dice
from support.oracle.drawing.pods import running_pod
from support.oracle.lines import Document

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AGES = (30, 90, 630, 1230, 3630, 7230, 90_030)
"""Seconds. Arguments have whole minutes: half a minute may pass between the two answers."""

PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
CLASSES = {"high": 1000, "low": 5}
CRITICAL = 2_000_000_000
REASONS = ("CrashLoopBackOff", "ImagePullBackOff", "Error", "OOMKilled", "Completed")


def cluster(dice: Dice) -> Document:
    roomy = dice.chance(0.75)
    nodes = [_node(dice, f"n{number}", roomy=roomy) for number in range(dice.number(2, 6))]
    for each in nodes[:2]:  # without two ready nodes there is no round
        each["status"].pop("conditions", None)
    names: list[str] = [each["metadata"]["name"] for each in nodes]
    crowded = dice.some(names, len(names)) if dice.chance(0.7) else names
    most = dice.one((4, 12)) * len(names)
    places = [dice.one(crowded if dice.chance(0.85) else names) for _ in range(dice.number(len(names), most))]
    pods = [_pod(dice, f"p{number}", place) for number, place in enumerate(places)]
    pods.sort(key=lambda pod: (pod["metadata"]["namespace"], pod["metadata"]["name"]))
    return {
        "now": rfc3339(NOW),
        "nodes": nodes,
        "pods": pods,
        "namespaces": [namespace(dice, name) for name in NAMESPACES],
        "podDisruptionBudgets": [_budget(dice, f"b{number}") for number in range(dice.number(0, 3))],
        "persistentVolumeClaims": [_claim(dice, namespace, name) for namespace in NAMESPACES for name in ("d0", "d1")],
        "priorityClasses": [{"metadata": {"name": name}, "value": value} for name, value in CLASSES.items()],
    }


def rank(pod: Document) -> tuple[Any, ...]:
    """Pods of one rank are in any order for the descheduler."""
    read = pod_from_json(pod)
    return read.spec.priority, kube_qos(read), PREFER_NO_EVICTION in read.metadata.annotations


def _node(dice: Dice, name: str, *, roomy: bool) -> Document:
    found = node(dice, name)
    if roomy:
        found["status"]["allocatable"] |= {"cpu": "64", "memory": "100Gi", "pods": "110"}
    if dice.has("not ready", 0.2):
        found["status"]["conditions"] = [{"type": "Ready", "status": dice.one(("True", "False", "Unknown"))}]
    if dice.has("no allocatable", 0.1):
        del found["status"]["allocatable"]
    return found


def _pod(dice: Dice, name: str, node: str) -> Document:
    found = with_pod_defaults(running_pod(dice, name, node))
    metadata, spec, status = found["metadata"], found["spec"], found["status"]
    if dice.chance(0.95):
        owners = [_owner(dice) for _ in range(1 if dice.chance(0.9) else 2)]
        metadata["ownerReferences"] = [*{each["uid"]: each for each in owners}.values()]
    if not spec.get("nodeSelector"):  # an API server stores no empty one
        spec.pop("nodeSelector", None)
    if '"-1"' in json.dumps(spec.get("affinity", {})):  # an API server refuses such a bound
        del spec["affinity"]
    if dice.has("alike", 0.3):
        metadata["namespace"] = "default"
        spec["containers"] = [{**each, "image": "i0"} for each in spec["containers"]]
    if dice.has("failed", 0.1):
        status["phase"] = "Failed"
    if dice.has("annotations", 0.3):
        metadata["annotations"] = dice.labels(
            {
                "descheduler.alpha.kubernetes.io/evict": ("", "true"),
                PREFER_NO_EVICTION: ("", "true"),
                "kubernetes.io/config.mirror": ("x",),
                "kubernetes.io/config.source": ("api", "file"),
            },
            0.3,
        )
    if dice.has("local", 0.15):
        spec["volumes"] = [{"name": "v", dice.one(("emptyDir", "hostPath", "configMap")): {}}]
    if dice.has("claims", 0.2):
        claimed = {"claimName": dice.one(("d0", "d1", "missing"))}
        spec["volumes"] = [*spec.get("volumes", ()), {"name": "c", "persistentVolumeClaim": claimed}]
    if dice.has("resource claims", 0.1):
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    if dice.chance(0.7):
        spec["priority"] = dice.one((0, 5, 5, 100, 1000, 999, -5, CRITICAL, CRITICAL - 1))
    age = dice.one(AGES)
    metadata["creationTimestamp"] = _before(age)
    if dice.chance(0.9):
        status["startTime"] = _before(dice.one([each for each in AGES if each <= age]))
    _statuses(dice, found)
    return found


def _statuses(dice: Dice, pod: Document) -> None:
    """Restarts, states and conditions. A status of a resize stays."""
    spec, status = pod["spec"], pod["status"]
    for field, containers in (
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", ""),
    ):
        names = [each["name"] for each in spec.get(containers, ())] if containers else ["debug"]
        known = {each["name"]: each for each in status.get(field, ())}
        found = [{**known.get(name, {"name": name}), **_state(dice)} for name in names if dice.has(field, 0.7)]
        if found:
            status[field] = found
    if dice.has("reasons", 0.3):
        status["reason"] = dice.one(("NodeLost", "Evicted", "OutOfcpu"))
    if dice.has("conditions", 0.4):
        more = [_condition(dice) for _ in range(dice.number(1, 2))]
        status["conditions"] = [*status.get("conditions", ()), *more]


def _state(dice: Dice) -> Document:
    found: Document = {"restartCount": dice.one((0, 0, 1, 3, 9))}
    state = dice.one(("running", "waiting", "terminated", None))
    if state == "waiting":
        found["state"] = {state: {"reason": dice.one(REASONS)}}
    elif state == "terminated":
        found["state"] = {state: {"reason": dice.one(REASONS), "exitCode": dice.one((0, 1, 137))}}
    elif state == "running":
        found["state"] = {state: {}}
    return found


def _condition(dice: Dice) -> Document:
    found = {"type": dice.one(("Ready", "PodScheduled")), "status": dice.one(("True", "False"))}
    if dice.chance(0.5):
        found["reason"] = dice.one(("Unschedulable", "ContainersNotReady"))
    if dice.chance(0.8):
        found["lastTransitionTime"] = _before(dice.one(AGES))
    return found


def _owner(dice: Dice) -> Document:
    kind = "ReplicaSet" if dice.chance(0.8) else dice.one(("StatefulSet", "Job", "DaemonSet"))
    name = dice.one(("w", "w", "v"))
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"{kind}-{name}"}


def _budget(dice: Dice, name: str) -> Document:
    spec: Document = {"minAvailable": 1}
    if dice.chance(0.9):
        spec["selector"] = selector(dice)
    return {"metadata": {"name": name, "namespace": dice.one(NAMESPACES)}, "spec": spec}


def _claim(dice: Dice, namespace: str, name: str) -> Document:
    spec = dice.one(({"storageClassName": "fast"}, {"storageClassName": "slow"}, {}, {"storageClassName": ""}))
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def _before(seconds: int) -> str:
    return rfc3339(NOW - timedelta(seconds=seconds))
