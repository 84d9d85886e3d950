"""Base plugins that no vector covers, through the whole scheduler: host ports, volumes, claims, default spreading."""

from typing import Any

import pytest
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol.objects import Pod
from koordcore.protocol.storage import BIND_COMPLETED
from support.scheduler.plugins import node_of, refusal
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

ZONE = "topology.kubernetes.io/zone"
CLAIM: dict[str, Any] = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


def scheduler_of(configuration: str = "", **zones: str) -> Scheduler:
    """Nodes by name, each in a zone."""
    log = SmallLog()
    for name, zone in zones.items():
        log.add_node(node(name, labels={ZONE: zone, "kubernetes.io/hostname": name}))
    return Scheduler(log, configuration)


def put(scheduler: Scheduler, plural: str, name: str, namespace: str = "default", **document: Any) -> None:
    ref = custom_ref(plural, namespace, name)
    meta = {"namespace": namespace, "name": name, **document.pop("metadata", {})}
    scheduler.log.say(ref.kind, ref.id, CustomObjectObserved(object={"metadata": meta, **document}))


def listening(name: str, port: int, **more: Any) -> Pod:
    container = {"name": "main", "ports": [{"hostPort": port, "containerPort": port, **more}]}
    return pod(name, containers=[container])


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        ({}, {}, False),
        ({}, {"protocol": "UDP"}, True),
        ({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.2"}, True),
        ({"hostIP": "10.0.0.1"}, {"hostIP": "10.0.0.1"}, False),
        ({"hostIP": "10.0.0.1"}, {"hostIP": "0.0.0.0"}, False),
        ({"hostIP": "10.0.0.1"}, {}, False),
    ],
)
def test_host_port_is_taken_once_per_protocol_and_address(
    first: dict[str, str], second: dict[str, str], fits: bool
) -> None:
    scheduler = scheduler_of(a="x")
    assert node_of(scheduler, listening("p", 80, **first)) == "a"
    assert node_of(scheduler, listening("q", 80, **second)) == ("a" if fits else "")
    if not fits:
        assert "1 node(s) didn't have free ports for the requested pod ports" in refusal(scheduler).message
        scheduler.log.remove_pod("p")
        scheduler.run(now=20.0)
        assert scheduler.state.pods["q"].node == "a"


@pytest.mark.parametrize("restart_policy", ["Always", None])
def test_host_port_of_a_sidecar_is_taken_and_that_of_an_init_container_is_not(restart_policy: str | None) -> None:
    scheduler = scheduler_of(a="x")
    ports = [{"hostPort": 80, "containerPort": 80}]
    init = {"name": "init", "ports": ports, **({"restartPolicy": restart_policy} if restart_policy else {})}
    with_init = pod("p", containers=[{"name": "main"}], initContainers=[init])
    assert node_of(scheduler, with_init) == "a"
    assert node_of(scheduler, listening("q", 80)) == ("" if restart_policy else "a")


def bind_claim(scheduler: Scheduler, **volume: Any) -> None:
    spec = {"volumeName": "disk", "accessModes": ["ReadWriteOnce"]}
    put(scheduler, "persistentvolumeclaims", "data", spec=spec, metadata={"annotations": {BIND_COMPLETED: "yes"}})
    put(scheduler, "persistentvolumes", "disk", namespace="", **volume)


def test_pod_goes_where_the_node_affinity_of_its_bound_volume_leads() -> None:
    scheduler = scheduler_of(a="x", b="y")
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}]
    bind_claim(scheduler, spec={"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}})
    assert node_of(scheduler, pod("p", {"cpu": "1"}, **CLAIM)) == "b"
    scheduler.log.add_pod(pod("q", {"cpu": "4"}, **CLAIM))
    scheduler.run()
    assert "1 node(s) didn't match PersistentVolume's node affinity" in refusal(scheduler).message


@pytest.mark.parametrize(("zones", "expected"), [("y", {"b"}), ("y__z", {"b", "c"}), ("w", {""})])
def test_pod_goes_where_the_zone_labels_of_its_bound_volume_allow(zones: str, expected: set[str]) -> None:
    scheduler = scheduler_of(a="x", b="y", c="z")
    bind_claim(scheduler, metadata={"labels": {ZONE: zones}}, spec={})
    assert {node_of(scheduler, pod(f"p{number}", {"cpu": "1"}, **CLAIM)) for number in range(4)} == expected


def test_pod_waits_for_its_claim_and_says_so() -> None:
    scheduler = scheduler_of(a="x")
    assert node_of(scheduler, pod("p", {"cpu": "1"}, **CLAIM)) == ""
    assert 'persistentvolumeclaim "data" not found' in refusal(scheduler).message
    bind_claim(scheduler, spec={})
    scheduler.run(now=20.0)
    assert scheduler.state.pods["p"].node == "a"


def test_pod_with_resource_claims_is_refused_with_a_reason() -> None:
    scheduler = scheduler_of(a="x")
    assert node_of(scheduler, pod("p", resourceClaims=[{"name": "gpu"}])) == ""
    assert "dynamic resource allocation" in refusal(scheduler).message


def web(name: str) -> Pod:
    return with_metadata(pod(name, {"cpu": "100m"}), labels={"app": "web"})


SPREAD_ONLY = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins: {score: {disabled: [{name: "*"}], enabled: [{name: PodTopologySpread}]}}
"""


def test_pods_of_a_service_are_spread_over_zones_by_default_and_pods_of_none_are_not_judged() -> None:
    scheduler = scheduler_of(SPREAD_ONLY, a="x", b="x", c="y")
    put(scheduler, "services", "web", spec={"selector": {"app": "web"}})
    homes = [node_of(scheduler, web(f"p{number}")) for number in range(3)]
    assert sorted(homes) == ["a", "b", "c"]
    assert "c" in homes[:2]  # the second zone before the second node of the first
    engine = scheduler.state.frameworks.first.engine
    alone = scheduler.state.cluster.pod_classes.read(pod("alone", {"cpu": "100m"})).subject
    assert not engine.cross_node_filters(alone).scores
