"""Pods that displace others, quotas that lend, gangs that wait: on a real stack, asked with the `koord` command."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from koordcore.protocol import keys
from support.koord_command import KoordCommand
from support.servers import server_directory
from support.until import until_blocking

pytestmark = [
    pytest.mark.deep,
    pytest.mark.slow,
    pytest.mark.nats,
    pytest.mark.postgres,
    pytest.mark.xdist_group("embedded-stack"),
]

OBJECTS = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 100000
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: patient}
value: 10
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: team-a}
spec: {min: {cpu: "4"}, max: {cpu: "12"}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: team-b}
spec: {min: {cpu: "8"}, max: {cpu: "12"}}
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: training}
spec: {minMember: 2}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: calm}
spec: {minAvailable: 1, selector: {matchLabels: {app: calm}}}
---
apiVersion: v1
kind: Service
metadata: {name: calm}
spec: {selector: {app: calm}}
"""


def pod(name: str, cpu: str, labels: dict[str, str] | None = None, priority: str = "patient") -> str:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "main", "image": "x:1", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"priorityClassName": priority, "containers": [container]}
    meta = {"name": name, "labels": labels or {}}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


class Koord(KoordCommand):
    """The command with what these stories ask."""

    def apply(self, *documents: str) -> None:
        self.run("apply", "-f", "-", stdin="\n---\n".join(documents))

    def steps(self, name: str) -> list[str]:
        """What happened to a pod, in order."""
        return [moment["step"] for moment in self.ask("explain", "pod", name)["moments"]]

    def everything(self) -> str:
        """What the log tells of every pod, for a failure."""
        return self.run("events", "--kind", "pod") + self.run("get", "pods")


@pytest.fixture(scope="module")
def koord() -> Iterator[Koord]:
    """A stack with one simulated node of 16 cores."""
    with server_directory() as folder:
        command = Koord(folder / "var")
        try:
            command.run("up", "--no-agent", "--simulated-nodes", "1")
            command.apply(OBJECTS)
            yield command
        finally:
            command.run("down")


def quota_tells_what_it_borrows_and_from_whom(koord: Koord) -> None:
    koord.apply(*(pod(f"low-{number}", "4", {keys.QUOTA_NAME: "team-a"}) for number in range(2)))

    def quotas() -> dict[str, Any]:
        return {quota["name"]: quota for quota in koord.ask("quota", "tree")[""]}

    until_blocking(lambda: quotas()["team-a"]["used"] == {"cpu": 8000}, "the placement of both pods")
    [share] = quotas()["team-a"]["shares"]
    assert (share["borrowed"], share["lenders"]) == (4000, {"team-b": 8000})
    assert "lends 8 of its min 8" in koord.run("quota", "tree")


def gang_that_is_not_complete_says_so_and_its_pod_is_gated(koord: Koord) -> None:
    koord.apply(pod("member-0", "1", {keys.POD_GROUP: "training"}))
    until_blocking(lambda: "gated" in koord.steps("member-0"), "the gate")
    [line] = koord.ask("gang")
    assert (line["phase"], line["pending"], line["min_members"]) == ("Pending", 1, 2)
    assert "0 of 2 placed, 1 of 2 exist: waits for 1 more pod" in koord.run("gang", "training")
    koord.apply(pod("member-1", "1", {keys.POD_GROUP: "training"}))
    until_blocking(lambda: "placed" in koord.steps("member-0"), "the gang's placement")
    until_blocking(lambda: koord.ask("gang")[0]["phase"] in ("Scheduled", "Running"), "the phase")


def urgent_pod_displaces_patient_ones_and_both_sides_are_told(koord: Koord) -> None:
    koord.apply(pod("urgent", "9", priority="urgent"))
    until_blocking(lambda: "placed" in koord.steps("urgent"), "the placement of the urgent pod")
    story = koord.ask("explain", "pod", "urgent")
    kinds = [moment["step"] for moment in story["moments"]]
    assert {"unschedulable", "nominated"} <= set(kinds[: kinds.index("placed")]), koord.everything()
    [refused] = [moment for moment in story["moments"] if moment["step"] == "unschedulable"][:1]
    victims = [victim["name"] for victim in refused["diagnosis"]["preemption"]["victims"]]
    assert victims
    assert set(victims) <= {"low-0", "low-1", "member-0", "member-1"}
    for victim in victims:
        until_blocking(lambda victim=victim: "evicted" in koord.steps(victim), "the eviction")
        assert "urgent" in koord.run("explain", "pod", victim)
    assert "PodNominated" in koord.run("events", "--kind", "pod")


def custom_resources_have_the_status_of_that_moment(koord: Koord) -> None:
    """What the projector's archive gives is what the manager shows of the present."""

    def statuses(kind: str, *words: str) -> dict[str, Any]:
        found = koord.ask("get", kind, *words)["items"]
        return {item["metadata"]["name"]: (item.get("status"), item["metadata"].get("annotations")) for item in found}

    for kind, name in (("elasticquotas", "team-a"), ("podgroups", "training")):
        until_blocking(
            lambda kind=kind: statuses(kind) == statuses(kind, "--as-of", datetime.now(UTC).isoformat()),
            f"the status of {kind} in the archive",
        )
        assert statuses(kind)[name][0]
    assert not statuses("podgroups", "--as-of", "1")


def what_was_explained_is_explained_as_of_then(koord: Koord) -> None:
    now = koord.ask("explain", "pod", "urgent")
    kinds = [moment["step"] for moment in now["moments"]]
    before = kinds.index("placed")
    at = str(now["moments"][before]["position"] - 1)
    then = koord.ask("explain", "pod", "urgent", "--as-of", at)
    assert then["status"] == "Pending"
    assert then["moments"] == now["moments"][:before]
    assert koord.run("explain", "pod", "urgent").count("low-") <= 1  # preemption is told once
    assert f"as of position {at}" in koord.run("explain", "node", "node-1", "--as-of", at)
    quotas = koord.run("get", "elasticquotas", "--as-of", at)
    assert quotas.split()[:4] == ["NAMESPACE", "NAME", "PARENT", "CPU-MIN"]
    assert quotas.splitlines()[1].split()[:4] == ["default", "team-a", "koordinator-root-quota", "4"]


def test_pods_that_borrow_wait_for_each_other_and_displace_others_can_all_be_explained(koord: Koord) -> None:
    """One story: each part goes on with the pods of the one before."""
    quota_tells_what_it_borrows_and_from_whom(koord)
    gang_that_is_not_complete_says_so_and_its_pod_is_gated(koord)
    custom_resources_have_the_status_of_that_moment(koord)
    urgent_pod_displaces_patient_ones_and_both_sides_are_told(koord)
    what_was_explained_is_explained_as_of_then(koord)


def test_pod_that_fits_nowhere_names_its_nodes(koord: Koord) -> None:
    koord.apply(pod("huge", "64"))
    until_blocking(lambda: "unschedulable" in koord.steps("huge"), "the verdict")
    text = koord.run("explain", "pod", "huge")
    assert "The only node lacks cpu (needs 64, the largest has " in text
    assert "larger nodes or smaller requests would help" in text
    every = koord.run("explain", "pod", "huge", "--all", "--nodes")
    assert "1 x NodeResourcesFit: Insufficient cpu (removing pods does not help): node-1" in every


def test_objects_that_placement_reads_are_kept_and_shown(koord: Koord) -> None:
    koord.apply(pod("calm", "100m", {"app": "calm"}))
    until_blocking(lambda: koord.ask("get", "pdb", "calm").get("status", {}).get("currentHealthy") == 1, "the status")
    assert koord.ask("get", "svc", "calm")["spec"]["selector"] == {"app": "calm"}


def test_greatest_number_of_replicas_that_fits_is_the_number_that_then_lands(koord: Koord) -> None:
    container = {"name": "main", "image": "x:1", "resources": {"requests": {"cpu": "500m", "memory": "16Mi"}}}
    template = {"metadata": {"labels": {"app": "many"}}, "spec": {"containers": [container]}}

    def deployment(replicas: int) -> str:
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "many"}}, "template": template}
        return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "many"}, "spec": spec})

    def placed() -> int:
        pods = koord.ask("get", "pods")["items"]
        return sum("nodeName" in each["spec"] for each in pods if each["metadata"]["name"].startswith("many-"))

    def fit(*words: str, stdin: str) -> Any:
        return json.loads(koord.run("fit", "-f", "-", "-o", "json", *words, stdin=stdin))

    found = fit("--max", stdin=deployment(1))
    assert found["most"] > 0
    assert [each["node"] for each in found["nodes"]] == ["node-1"]
    assert found["sets"][0]["shortage"]["resource"] == "cpu"
    assert fit(stdin=deployment(found["most"]))["sets"][0]["placed"] == found["most"]
    assert placed() == 0  # a question changes nothing
    koord.apply(deployment(found["most"] + 1))
    until_blocking(lambda: placed() == found["most"], "the pods that fit")
