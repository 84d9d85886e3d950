"""Spreading of pods that name no constraint, by the selectors of their services and controllers."""

from typing import Any

import msgspec
import pytest
from koord_scheduler.domain.cluster.selectors import OwnerSelectors
from koord_scheduler.domain.loop.commit.work import Placement
from koordcore.protocol.objects import LabelSelector, OwnerReference
from koordcore.protocol.selectors import compile_selector
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata
from support.scheduler.volumes import say

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
WEB = {"app": "web"}


def spread_scores(plural: str, selector: dict[str, Any], owner: str = "") -> dict[str, int]:
    """Node -> score of PodTopologySpread, weighted with 2, for a pod of `WEB`. One pod of `WEB` runs on node b in zone
    c; c has no zone and no host name. `selector` is that of an object of a kind; `owner`: the kind that owns the pods.
    """
    log = SmallLog()
    for name, labels in (("a", {ZONE: "b"}), ("b", {ZONE: "c"}), ("c", {})):
        log.add_node(node(name, labels=labels))
    metadata = {"name": "w", "namespace": "default"}
    scheduler = Scheduler(log)
    say(scheduler, plural, {"metadata": metadata, "spec": {"selector": selector}})
    references = [OwnerReference(kind=owner, name="w", controller=True)] if owner else []
    for one in (pod("r", {"cpu": "1"}, nodeName="b"), pod("p", {"cpu": "1"})):
        meta = msgspec.structs.replace(one.metadata, owner_references=references)
        log.add_pod(with_metadata(msgspec.structs.replace(one, metadata=meta), labels=WEB))
    scheduler.follow()
    placed = scheduler.decide()
    assert isinstance(placed, Placement)
    return {top.node: top.parts.get("PodTopologySpread", 0) for top in placed.explanation.top}


def test_nodes_without_a_zone_count_as_one_domain() -> None:
    # Three domains: round(ln(3 + 2) + 4) = 6 for b, 4 for a, 0 for c
    assert spread_scores("services", WEB) == {"a": 2 * (100 * (6 - 4) // 6), "b": 0, "c": 2 * 100}


@pytest.mark.parametrize(
    ("plural", "kind", "selector", "spreads"),
    [
        ("replicasets", "ReplicaSet", {"matchLabels": WEB}, True),
        ("replicationcontrollers", "ReplicationController", WEB, True),
        ("jobs", "Job", {"matchLabels": WEB}, False),
    ],
)
def test_controllers_that_spread_their_pods_are_those_of_kube_scheduler(
    plural: str, kind: str, selector: dict[str, Any], spreads: bool
) -> None:
    assert any(spread_scores(plural, selector, kind).values()) == spreads


def test_labels_of_a_service_and_of_another_controller_are_both_required() -> None:
    owners = OwnerSelectors()
    owners.put_service("default", "s", {"app": "web"})
    owners.put_controller("StatefulSet", "default", "w", LabelSelector(match_labels={"app": "db"}))
    selector = owners.selector_of("default", WEB, [("StatefulSet", "w")])
    assert selector is not None
    assert not compile_selector(selector).matches({"app": "web"})
    assert not compile_selector(selector).matches({"app": "db"})
