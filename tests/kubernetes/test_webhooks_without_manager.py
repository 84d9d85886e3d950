"""Pods while no manager answers: those that admission decides about wait, all others are created and changed."""

import json
from typing import Any

import pytest
from koord_manager.domain.admission.concerned import MOST_CHARACTERS, matched_pods
from koord_manager.domain.admission.context.profiles import read_profile
from koord_manager.domain.admission.options import Options
from support.kubernetes.control_plane import Answer, ControlPlane
from support.kubernetes.installation import Installation, rendered

pytestmark = [pytest.mark.kubernetes]

Json = dict[str, Any]
QOS = "koordinator.sh/qosClass"
CONFIGURATION = "koordinator-mutating-webhook-configuration"
SPACES = ("colocated", "apart")
BATCH = {"kubernetes.io/batch-cpu": "100"}


def pod(name: str, *, labels: Json | None = None, resources: Json | None = None, **spec: Any) -> Json:
    container = {"name": "main", "image": "pause", "resources": resources or {}}
    meta = {"name": name, "labels": {"team": "a", **(labels or {})}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container], **spec}}


def create(plane: ControlPlane, document: Json, namespace: str = "default") -> Answer:
    return plane.ask("create", "-n", namespace, "-f", "-", stdin=json.dumps(document))


def profile(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": name},
        "spec": spec,
    }


def entries(plane: ControlPlane) -> dict[str, Json]:
    """Name of a webhook -> its entry."""
    found: list[Json] = plane.get("mutatingwebhookconfiguration", CONFIGURATION)["webhooks"]
    return {entry["name"].partition(".")[0]: entry for entry in found}


async def test_only_pods_that_admission_decides_about_wait_for_a_manager(
    plane: ControlPlane, installed: Installation
) -> None:
    shipped = next(item for item in rendered() if item["kind"] == "MutatingWebhookConfiguration")
    plane.apply(shipped)
    for name in SPACES:
        labels = {"colocation": "yes" if name == "colocated" else "no"}
        plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    await installed.start_manager("manager")
    await installed.until_ready("manager")
    await installed.until(lambda: installed.leader() == "manager", "the manager leads")
    plane.apply(
        profile(
            "offline",
            namespaceSelector={"matchLabels": {"colocation": "yes"}},
            selector={"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]},
            labels={QOS: "LS"},
        )
    )
    await installed.until(lambda: "mpod-create-matched" in entries(plane), "the condition has the profile")
    again = plane.ask("apply", "--server-side", "-f", "-", stdin=json.dumps(shipped))
    assert again.code == 0, again.err
    assert '["colocated"]' in entries(plane)["mpod-create-matched"]["matchConditions"][-1]["expression"]

    # a manager answers: both entries send, each pod to one of them
    assert create(plane, pod("plain")).code == 0
    held = pod("service", labels={QOS: "LS"})
    held["metadata"]["finalizers"] = ["example.org/held"]
    assert create(plane, held).code == 0
    assert create(plane, pod("matched"), "colocated").code == 0
    assert plane.get("pod", "matched", "-n", "colocated")["metadata"]["labels"][QOS] == "LS"
    refused = create(plane, pod("wrong", resources={"requests": BATCH, "limits": BATCH}))
    assert refused.code
    assert "must specify koordinator QoS BE" in refused.err

    await installed.kill()
    passing = [
        create(plane, pod("other")),
        create(plane, pod("front", labels={"tier": "front"}), "colocated"),
        create(plane, pod("elsewhere"), "apart"),
        plane.ask("label", "pod", "plain", "-n", "default", "more=yes"),
        plane.ask("patch", "pod", "service", "-n", "default", "--type=merge", "-p", '{"metadata":{"finalizers":null}}'),
    ]
    waiting = [
        create(plane, pod("ls", labels={QOS: "LS"})),
        create(plane, pod("prod", priorityClassName="koord-prod")),
        create(plane, pod("ours", schedulerName="koord-scheduler")),
        create(plane, pod("lent", resources={"requests": BATCH, "limits": BATCH})),
        create(plane, pod("profiled"), "colocated"),
        plane.ask("label", "pod", "service", "-n", "default", f"{QOS}-"),
    ]

    assert [answer.err for answer in passing if answer.code] == []
    assert [answer.out for answer in waiting if not answer.code] == []
    assert all("failed calling webhook" in answer.err for answer in waiting)
    plane.kubectl("delete", "clustercolocationprofile", "offline")
    plane.kubectl("delete", "namespace", *SPACES, "--wait=false")


async def test_the_condition_of_a_large_cluster_stays_within_the_limits_of_cel(
    plane: ControlPlane, installed: Installation
) -> None:
    """An expression that costs too much fails, and its entry refuses every pod."""
    del installed
    chosen = [
        read_profile(
            profile(
                f"p{number}",
                namespaceSelector={"matchLabels": {"group": str(number % 20)}},
                selector={
                    "matchLabels": {"app": f"app-{number}"},
                    "matchExpressions": [{"key": "x", "operator": "Exists"}],
                },
            )
        )
        for number in range(200)
    ]
    namespaces = {f"a-namespace-with-a-long-name-{number}": {"group": str(number % 20)} for number in range(1500)}
    entry = entries(plane)["mpod-create-others"]
    wanted = matched_pods(Options(), chosen, namespaces).new
    assert wanted.count("request.namespace in") == 20
    assert MOST_CHARACTERS * 0.8 < len(wanted) <= MOST_CHARACTERS
    entry["matchConditions"].append({"name": "matched", "expression": wanted})
    entry["failurePolicy"] = "Fail"
    entry["clientConfig"] = {"url": "https://127.0.0.1:9/"}
    large = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "large"},
        "webhooks": [entry],
    }
    labels = {f"label-{number}": "x" for number in range(50)}
    try:
        made = create(plane, large)
        assert made.code == 0, made.err[-500:]
        answer = create(plane, pod("many-labels", labels={"x": "a", "app": "app-7", **labels}))
        assert answer.code == 0, answer.err
    finally:
        plane.kubectl("delete", "mutatingwebhookconfiguration", "large", "--ignore-not-found")
