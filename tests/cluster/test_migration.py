"""A node is drained: a Reservation holds a place on the other node before a pod leaves, and its successor runs there.

The node that is drained is a stand-in. The one on which the successors run is real.
"""

from collections.abc import Generator

import pytest
from koordctl.stack.containers import IMAGE
from support.agent.real_node import SHOW
from support.cluster.cluster import NODES, Cluster
from support.cluster.koord_command import Operator
from support.cluster.stand_in import stand_in_node
from support.cluster.workloads import Json, first_line, shared_cpu, wait_running
from support.until import until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.root, pytest.mark.timeout(1200)]

OTHER = "node-2"
NAME = "shop"
STEPS = ("ReservationScheduled", "has been evicted", "ReservationBound", "succeeded  ")


def deployment() -> Json:
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", SHOW],
        "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}},
    }
    spec = {
        "schedulerName": "koord-scheduler",
        "priorityClassName": "koord-prod",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    labels = {"app": NAME, "koordinator.sh/qosClass": "LS"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": NAME}}, "template": template},
    }


def pods(cluster: Cluster) -> dict[str, str]:
    """Name -> node of the pods of the Deployment that run and stay."""
    items: list[Json] = cluster.plane.get("pods", "-l", f"app={NAME}")["items"]
    live = (each for each in items if "deletionTimestamp" not in each["metadata"])
    return {
        each["metadata"]["name"]: each["spec"].get("nodeName", "")
        for each in live
        if each["status"]["phase"] == "Running"
    }


@pytest.fixture
def other_node(cluster: Cluster, someone: Operator) -> Generator[None]:
    """A second node, which has one of two pods of the Deployment: within five minutes, one pod of a workload moves."""
    with stand_in_node(cluster, OTHER):
        try:
            own = cluster.machine.name
            until_blocking(lambda: OTHER in someone.koord("get", "nodes"), "the second node is known", every=0.5)
            cluster.plane.apply(deployment())
            for closed, nodes in ((own, [OTHER]), (OTHER, [own, OTHER])):
                cluster.plane.kubectl("cordon", closed)
                cluster.plane.kubectl("scale", "deployment", NAME, f"--replicas={len(nodes)}")
                until_blocking(lambda nodes=nodes: sorted(pods(cluster).values()) == nodes, "its pods run", every=0.5)
                cluster.plane.kubectl("uncordon", closed)
            yield
        finally:
            cluster.plane.kubectl("uncordon", cluster.machine.name)
            cluster.plane.kubectl("delete", "deployment", NAME, "--ignore-not-found", "--wait=false")
            cluster.plane.kubectl("delete", "drainnode", f"drain-{OTHER}", "--ignore-not-found")
    agents = ("pods", "-n", NODES, "-l", "koord-app=koord-agent")
    until_blocking(lambda: len(cluster.plane.get(*agents)["items"]) == 1, "one agent is left", every=0.5)


@pytest.mark.usefixtures("other_node")
def test_a_drain_reserves_places_before_pods_leave(cluster: Cluster, someone: Operator) -> None:
    (leaves,) = (name for name, node in pods(cluster).items() if node == OTHER)
    said = someone.koord("drain", OTHER, "--confirm")
    assert "is Complete" in said, said
    own = cluster.machine.name
    until_blocking(lambda: list(pods(cluster).values()) == [own, own], "the successor runs", every=0.5)
    after = pods(cluster)
    assert leaves not in after
    wait_running(cluster, *after)
    for name in after:
        first = first_line(cluster, name)
        assert (first["cpus"], first["quota"]) == (shared_cpu(cluster), "10000")
    jobs: list[Json] = cluster.plane.get("podmigrationjobs")["items"]
    (job,) = (each["metadata"]["name"] for each in jobs if each["spec"]["podRef"]["name"] == leaves)
    story = someone.koord("explain", "migration", job)
    steps = [story.index(word) for word in STEPS]
    assert steps == sorted(steps), story
