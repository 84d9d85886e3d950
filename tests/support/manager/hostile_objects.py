"""Objects as hostile users and broken writers send them, and a cluster that is broken itself: tests of admission."""

import json
import random
from typing import Any, cast

from koord_manager.domain.admission.context.facts import (
    ENHANCED_NAME,
    ENHANCED_NAMESPACE,
    PROFILES,
    QUOTA_PROFILES,
    Facts,
)
from koord_manager.domain.admission.options import GATE_DEFAULTS
from koord_manager.domain.admission.request import Operation, Request
from koordcore.protocol.objects import ObjectMeta, PriorityClass
from support.manager.webhook_world import review_body
from support.mutations import mutated

Json = dict[str, Any]
PREFIX = "quota.scheduling.koordinator.sh/"

PROFILE: Json = {
    "metadata": {"name": "be"},
    "spec": {
        "namespaceSelector": {"matchLabels": {"team": "a"}},
        "selector": {"matchExpressions": [{"key": "class", "operator": "In", "values": ["batch", "mid"]}]},
        "probability": "80%",
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "koordinatorPriority": 1000,
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "labelKeysMapping": {"class": "was"},
        "labelSuffixes": {"class": "-x"},
        "schedulerName": "koord-scheduler",
        "patch": {
            "metadata": {"$retainKeys": ["name", "namespace", "labels", "annotations"]},
            "spec": {
                "$setElementOrder/containers": [{"name": "main"}, {"name": "gpu"}],
                "containers": [
                    {
                        "name": "main",
                        "$patch": "merge",
                        "$deleteFromPrimitiveList/args": ["-v"],
                        "env": [{"name": "A", "value": "1"}],
                    }
                ],
                "priority": None,
            },
        },
    },
}
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web",
        "namespace": "default",
        "labels": {"class": "batch", "koordinator.sh/qosClass": "LS", f"{PREFIX}name": "leaf", "app": "x"},
        "annotations": {"node.koordinator.sh/extended-resource-spec": '{"containers":{}}'},
    },
    "spec": {
        "priority": 5500,
        "overhead": {"cpu": "10m"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                }
            }
        },
        "initContainers": [{"name": "init", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}],
        "containers": [
            {"name": "main", "resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": "1"}}},
            {"name": "gpu", "resources": {"requests": {"koordinator.sh/gpu": "200"}, "limits": {}}},
        ],
    },
}
QUOTA: Json = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "ElasticQuota",
    "metadata": {
        "name": "leaf",
        "namespace": "kube-system",
        "labels": {f"{PREFIX}parent": "all", f"{PREFIX}is-parent": "false", f"{PREFIX}tree-id": "t"},
        "annotations": {
            f"{PREFIX}shared-weight": '{"cpu":"4"}',
            f"{PREFIX}namespaces": '["n1"]',
            f"{PREFIX}guaranteed": '{"cpu":1}',
            f"{PREFIX}max-strict-check-resource-keys": '["cpu"]',
        },
    },
    "spec": {"min": {"cpu": 1}, "max": {"cpu": "4"}},
    "status": {"used": {"cpu": 1}},
}
RESERVATION: Json = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": {"name": "r", "labels": {"class": "batch"}},
    "spec": {"template": {"spec": {"containers": [{"name": "main"}]}}, "owners": [{"object": {"name": "x"}}]},
}
NODE: Json = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n",
        "labels": {"pool": "a"},
        "annotations": {
            "node.koordinator.sh/resource-amplification-ratio": '{"cpu":1.5,"memory":2}',
            "node.koordinator.sh/raw-allocatable": '{"cpu":"4"}',
        },
    },
    "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}, "capacity": {"cpu": "4", "memory": "8Gi"}},
}
CONFIG: Json = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
    "data": {
        "colocation-config": '{"enable":true,"nodeConfigs":[{"name":"a","nodeSelector":{"matchLabels":{"pool":"a"}},'
        '"cpuReclaimThresholdPercent":70}]}',
        "resource-threshold-config": '{"clusterStrategy":{"enable":true,"cpuSuppressThresholdPercent":65}}',
    },
}
BASES: list[tuple[str, Json]] = [
    ("/mutate-pod", POD),
    ("/validate-pod", POD),
    ("/mutate-pod", POD),
    ("/validate-pod-binding", {"metadata": {"name": "web"}, "target": {"name": "n"}}),
    ("/mutate-node-status", NODE),
    ("/validate-node", NODE),
    ("/validate-configmap", CONFIG),
    ("/mutate-reservation", RESERVATION),
    ("/mutate-scheduling-sigs-k8s-io-v1alpha1-elasticquota", QUOTA),
    ("/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota", QUOTA),
]
OLD_ONES: list[Any] = []
"""Stored objects of former versions, hostile as well; gathered once, since making them takes longest."""
GATES = [gate for gate in GATE_DEFAULTS if gate != "WebhookFramework"]


def facts_of(rng: random.Random, *, hostile: bool) -> Facts:
    """A cluster whose custom resources are themselves broken half of the time."""

    def maybe(document: Json) -> Json:
        broken: object = mutated(rng, document) if hostile and rng.random() < 0.5 else document
        return cast("Json", broken) if isinstance(broken, dict) else document

    facts = Facts()
    for number in range(3):
        facts.observe(PROFILES, "", f"p{number}", maybe(PROFILE))
    parent = json.loads(json.dumps(QUOTA))
    parent["metadata"]["name"] = "all"
    parent["metadata"]["labels"] = {f"{PREFIX}is-parent": "true", f"{PREFIX}tree-id": "t"}
    for quota in (parent, QUOTA):
        facts.observe("elasticquotas", "kube-system", quota["metadata"]["name"], maybe(quota))
    tree = {"metadata": {"name": "t", "labels": {f"{PREFIX}tree-id": "t"}}, "spec": {"nodeSelector": {"matchLabels": {"pool": "a"}}}}  # fmt: skip  # noqa: E501
    facts.observe(QUOTA_PROFILES, "kube-system", "t", maybe(tree))
    facts.namespace_observed("default", {"team": "a"})
    facts.node_observed("n", {"pool": "a"})
    facts.priority_class_observed("koord-batch", PriorityClass(metadata=ObjectMeta(name="koord-batch"), value=5000))
    rules = '[{"name":"r","requiredLabels":["app"]}]'
    facts.config_observed(ENHANCED_NAMESPACE, ENHANCED_NAME, {"enable": "true", "rules": rules})
    facts.slo_config = CONFIG["data"]
    return facts


def as_object(value: object) -> Json | None:
    """The value if it is an object: a review with anything else is refused when it is read."""
    return cast("Json", value) if isinstance(value, dict) else None


def hostile_request(rng: random.Random, number: int) -> Request:
    """One mutated object on its way in, as a review would have it."""
    path, base = rng.choice(BASES)
    document: Any = mutated(rng, base)
    request = review_body(path, document)["request"]
    operation = rng.choice((Operation.CREATE, Operation.CREATE, Operation.UPDATE, Operation.DELETE))
    if operation is not Operation.CREATE and len(OLD_ONES) < 500:
        OLD_ONES.append(mutated(rng, base))
    old = rng.choice((base, rng.choice(OLD_ONES), None)) if operation is not Operation.CREATE else None
    return Request(
        uid=str(number),
        operation=operation,
        resource=request["resource"]["resource"],
        subresource=request["subResource"],
        namespace=rng.choice(("default", "kube-system", "")),
        name=rng.choice(("web", "leaf", "")),
        object=as_object(document) if operation is not Operation.DELETE else None,
        old_object=as_object(old),
    )
