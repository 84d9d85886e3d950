"""Refusals by what runs elsewhere say what was counted in a domain, or which pod is in the way."""

from typing import Any

from koordcore.events.explanations import NodeFailure, PodUnschedulable
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
APP = {"matchLabels": {"app": "web"}}


def zones() -> SmallLog:
    """Two nodes in zone a, one full in zone b, one without a zone."""
    log = SmallLog()
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        log.add_node(node(name, cpu="1" if zone == "b" else "4", labels={ZONE: zone, HOSTNAME: name}))
    log.add_node(node("n4", labels={HOSTNAME: "n4"}))
    return log


def web(name: str, cpu: str = "1", **spec: Any) -> Any:
    return with_metadata(pod(name, {"cpu": cpu}, **spec), labels={"app": "web"})


def failures(scheduler: Scheduler) -> list[NodeFailure]:
    event = scheduler.explanations[-1].event
    assert isinstance(event, PodUnschedulable)
    assert event.diagnosis is not None
    assert sum(failure.count for failure in event.diagnosis.failures) == event.explanation.nodes_considered
    return event.diagnosis.failures


def spread(name: str, **more: Any) -> Any:
    constraint = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": APP}
    return web(name, "2", topologySpreadConstraints=[{**constraint, **more}])


def test_spread_names_domain_count_fewest_and_skew_and_keeps_the_reference_reason() -> None:
    log = zones()
    log.add_pod(web("first", nodeSelector={ZONE: "a"}))
    log.add_pod(pod("filler", {"cpu": "1"}, nodeSelector={ZONE: "b"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(spread("second"))
    scheduler.run()
    event = scheduler.explanations[-1].event
    assert isinstance(event, PodUnschedulable)
    assert event.message.startswith(
        "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod topology spread constraints"
        " (missing required label), 2 node(s) didn't match pod topology spread constraints."
    )
    told = {failure.reason: failure.details for failure in failures(scheduler) if failure.plugin == "PodTopologySpread"}
    assert told == {
        "node(s) didn't match pod topology spread constraints": [
            f"{ZONE}=a: matching pods 1, fewest 0 (in b), with this one a skew of 2, maxSkew 1"
        ],
        "node(s) didn't match pod topology spread constraints (missing required label)": [f"no label {ZONE}"],
    }


def test_too_few_domains_count_as_empty() -> None:
    log = zones()
    log.add_pod(web("in-a", nodeSelector={ZONE: "a"}))
    log.add_pod(web("in-b", nodeSelector={ZONE: "b"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(spread("third", minDomains=3))
    scheduler.run()
    [detail] = next(
        failure.details for failure in failures(scheduler) if failure.details and "=a" in failure.details[0]
    )
    assert detail == (
        f"{ZONE}=a: matching pods 1, fewest 0 (2 domains, minDomains 3), with this one a skew of 2, maxSkew 1"
    )


def affinity(kind: str, key: str) -> dict[str, Any]:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": APP}]}}


def test_anti_affinity_names_the_pod_in_the_way_whoever_of_the_two_asks_for_it() -> None:
    log = zones()
    log.add_pod(web("shy", nodeSelector={HOSTNAME: "n1"}, affinity=affinity("podAntiAffinity", ZONE)))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(web("plain", nodeSelector={ZONE: "a"}))
    scheduler.run()
    assert [each.details for each in failures(scheduler) if each.plugin == "InterPodAffinity"] == [
        [f"{ZONE}=a: default/shy on n1 keeps it away"]
    ]
    log.add_pod(web("other", nodeSelector={ZONE: "a"}, affinity=affinity("podAntiAffinity", HOSTNAME)))
    scheduler.run()
    assert [f"{HOSTNAME}=n1: it keeps away from default/shy on n1"] in [each.details for each in failures(scheduler)]


def test_affinity_names_the_domains_without_a_pod_to_be_near() -> None:
    log = zones()
    log.add_pod(web("first", nodeSelector={ZONE: "b"}))
    scheduler = Scheduler(log)
    scheduler.run()
    log.add_pod(web("near", "2", affinity=affinity("podAffinity", ZONE)))
    scheduler.run()
    [failure] = [failure for failure in failures(scheduler) if failure.plugin == "InterPodAffinity"]
    assert failure.details == [f"no label {ZONE}", f"{ZONE}=a: no pod that it wants to be near"]


def test_room_says_what_the_pod_needs_and_what_the_node_has_free() -> None:
    log = SmallLog()
    log.add_node(node("n1", cpu="4", memory="8Gi", more={"example.com/card": "2"}))
    log.add_pod(pod("filler", {"cpu": "2500m", "memory": "6Gi"}))
    log.add_pod(pod("large", {"cpu": "2", "memory": "3Gi", "example.com/card": "3"}))
    scheduler = Scheduler(log)
    scheduler.run()
    [failure] = [each for each in failures(scheduler) if each.plugin == "NodeResourcesFit"]
    [detail] = failure.details
    assert detail.split("; ") == [
        "n1: needs 2 cpu, has 1.5 of 4 free",
        "needs 3.0Gi memory, has 2.0Gi of 8.0Gi free",
        "needs 3 example.com/card, has 2 of 2 free",
    ]


def test_only_a_few_nodes_without_room_are_described() -> None:
    log = SmallLog()
    for number in range(9):
        log.add_node(node(f"n{number}", cpu="1", pods="0" if number % 2 else "10"))
    log.add_pod(pod("large", {"cpu": "2"}))
    scheduler = Scheduler(log)
    scheduler.run()
    told = [failure.details for failure in failures(scheduler)]
    assert [len(details) for details in told] == [5, 4]
    assert "n1: needs 1 pods, has 0 of 0 free; needs 2 cpu, has 1 of 1 free" in [line for each in told for line in each]
