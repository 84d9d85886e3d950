"""Pods with claims through the whole scheduler: which volumes are chosen, refused, kept and given back."""

from collections.abc import Callable
from typing import Any

import pytest
from koord_scheduler.domain.framework.extension_points import EXTENSION_POINTS
from koord_scheduler.domain.loop.folding.log import fold
from koordcore.events.gateway import PodBindFailed
from koordcore.protocol.objects import Pod
from support.scheduler.plugins import node_of, refusal
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod
from support.scheduler.volumes import HOST, ZONE, chosen, claim, forget, say, storage_class, user_of, volume

NO_VOLUME = "node(s) didn't find available persistent volumes to bind"


def scheduler_of(configuration: str = "", **zones: str) -> Scheduler:
    """Nodes by name, each in a zone, and the class `local`, whose volumes nobody makes."""
    log = SmallLog()
    for name, zone in zones.items():
        log.add_node(node(name, labels={ZONE: zone, HOST: name}))
    scheduler = Scheduler(log, configuration)
    storage_class(scheduler)
    return scheduler


def csi(scheduler: Scheduler, **more: Any) -> None:
    """The class `disks`, whose driver makes volumes."""
    storage_class(scheduler, "disks", "disks.example.com", **more)


# --- local volumes ---------------------------------------------------------------------------------------------------


def test_pod_goes_to_the_node_that_has_a_volume_for_its_claim() -> None:
    scheduler = scheduler_of(a="x", b="x")
    volume(scheduler, "disk", host="b")
    claim(scheduler)
    assert node_of(scheduler, user_of("data")) == "b"
    assert chosen(scheduler) == {"data": "disk"}


def test_smallest_volume_that_suits_is_chosen_and_no_volume_is_chosen_twice() -> None:
    scheduler = scheduler_of(a="x")
    for name, size in (("large", "10Gi"), ("medium", "5Gi"), ("small", "1Gi")):
        volume(scheduler, name, host="a", size=size)
    claim(scheduler, "first", size="2Gi")
    claim(scheduler, "second", size="2Gi")
    claim(scheduler, "third", size="2Gi")
    assert node_of(scheduler, user_of("first", uid="p")) == "a"
    assert node_of(scheduler, user_of("second", uid="q")) == "a"
    assert (chosen(scheduler, "p"), chosen(scheduler, "q")) == ({"first": "medium"}, {"second": "large"})
    assert node_of(scheduler, user_of("third", uid="r")) == ""
    assert f"1 {NO_VOLUME}" in refusal(scheduler).message


def test_claims_of_one_pod_get_different_volumes_of_one_node() -> None:
    scheduler = scheduler_of(a="x", b="x")
    volume(scheduler, "a1", host="a")
    volume(scheduler, "b1", host="b", size="2Gi")
    volume(scheduler, "b2", host="b", size="20Gi")
    claim(scheduler, "log", size="15Gi")
    claim(scheduler, "data", size="1Gi")
    assert node_of(scheduler, user_of("log", "data")) == "b"
    assert chosen(scheduler) == {"log": "b2", "data": "b1"}


def test_volume_of_a_deleted_pod_is_given_to_another_claim() -> None:
    scheduler = scheduler_of(a="x")
    volume(scheduler, "disk", host="a")
    claim(scheduler, "first")
    claim(scheduler, "second")
    assert node_of(scheduler, user_of("first", uid="p")) == "a"
    assert node_of(scheduler, user_of("second", uid="q")) == ""
    scheduler.log.remove_pod("p")
    scheduler.run(now=20.0)
    assert chosen(scheduler, "q") == {"second": "disk"}


def test_second_user_of_a_claim_follows_the_first() -> None:
    scheduler = scheduler_of(a="x", b="x")
    volume(scheduler, "on-a", host="a")
    volume(scheduler, "on-b", host="b")
    claim(scheduler)
    first = node_of(scheduler, user_of("data", uid="p"))
    assert node_of(scheduler, user_of("data", uid="q")) == first
    assert chosen(scheduler, "q") == chosen(scheduler, "p")


def test_volume_that_is_reserved_for_a_claim_goes_to_no_other_and_leads_its_pod() -> None:
    scheduler = scheduler_of(a="x", b="x")
    volume(scheduler, "on-a", host="a", claim="data")
    volume(scheduler, "on-b", host="b", size="2Gi")
    claim(scheduler, "data")
    claim(scheduler, "other", size="5Gi")
    assert node_of(scheduler, user_of("data")) == "a"
    assert chosen(scheduler) == {"data": "on-a"}
    assert node_of(scheduler, user_of("other", uid="q")) == ""


@pytest.mark.parametrize(
    "spec",
    [
        {"accessModes": ["ReadWriteMany"]},
        {"volumeMode": "Block"},
        {"selector": {"matchLabels": {"disk": "ssd"}}},
        {"storageClassName": "other"},
        {"volumeAttributesClassName": "fast"},
        {"resources": {"requests": {"storage": "11Gi"}}},
    ],
)
def test_volume_that_does_not_suit_is_not_chosen(spec: dict[str, Any]) -> None:
    scheduler = scheduler_of(a="x")
    storage_class(scheduler, "other")
    volume(scheduler, "disk", host="a")
    claim(scheduler, **spec)
    assert node_of(scheduler, user_of("data")) == ""
    assert NO_VOLUME in refusal(scheduler).message


@pytest.mark.parametrize("phase", ["Pending", "Released", "Failed"])
def test_volume_that_is_not_available_is_not_chosen_until_it_is(phase: str) -> None:
    scheduler = scheduler_of(a="x")
    volume(scheduler, "disk", host="a", phase=phase)
    claim(scheduler)
    assert node_of(scheduler, user_of("data")) == ""
    volume(scheduler, "disk", host="a")
    scheduler.run(now=20.0)
    assert scheduler.state.pods["p"].node == "a"


def test_diagnosis_names_the_claim() -> None:
    scheduler = scheduler_of(a="x")
    claim(scheduler, size="5Gi")
    assert node_of(scheduler, user_of("data")) == ""
    diagnosis = refusal(scheduler).diagnosis
    assert diagnosis is not None
    assert diagnosis.failures[0].details == ["claim data of storage class local requests 5.0Gi"]


def test_label_of_a_node_that_appears_helps() -> None:
    scheduler = scheduler_of(a="x")
    volume(scheduler, "disk", zone="y")
    claim(scheduler)
    assert node_of(scheduler, user_of("data")) == ""
    scheduler.log.add_node(node("a", labels={ZONE: "y", HOST: "a"}))
    scheduler.run(now=20.0)
    assert chosen(scheduler) == {"data": "disk"}


# --- provisioning ----------------------------------------------------------------------------------------------------


def test_volume_is_made_for_the_node_where_the_class_allows_it() -> None:
    scheduler = scheduler_of(a="x", b="y")
    csi(scheduler, allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["y"]}]}])
    claim(scheduler, of="disks")
    assert node_of(scheduler, user_of("data")) == "b"
    assert chosen(scheduler) == {"data": ""}


def test_volume_that_exists_is_preferred_to_one_that_is_made() -> None:
    scheduler = scheduler_of(a="x")
    csi(scheduler)
    volume(scheduler, "disk", of="disks")
    claim(scheduler, "first", of="disks")
    claim(scheduler, "second", of="disks")
    node_of(scheduler, user_of("first", "second"))
    assert sorted(chosen(scheduler).values()) == ["", "disk"]


def test_claim_whose_volume_is_made_for_a_node_stays_there() -> None:
    scheduler = scheduler_of(a="x", b="x")
    csi(scheduler)
    claim(scheduler, of="disks", selected_node="b")
    assert node_of(scheduler, user_of("data", uid="p")) == "b"
    claim(scheduler, "other", of="disks")
    first = node_of(scheduler, user_of("other", uid="q"))
    assert node_of(scheduler, user_of("other", uid="r")) == first


def capacity(scheduler: Scheduler, name: str, zone: str, amount: str) -> None:
    document = {
        "metadata": {"namespace": "driver", "name": name},
        "storageClassName": "disks",
        "nodeTopology": {"matchLabels": {ZONE: zone}},
        "capacity": amount,
    }
    say(scheduler, "csistoragecapacities", document)


def test_node_needs_free_storage_if_the_driver_tells_it() -> None:
    scheduler = scheduler_of(a="x", b="y")
    csi(scheduler)
    say(scheduler, "csidrivers", {"metadata": {"name": "disks.example.com"}, "spec": {"storageCapacity": True}})
    capacity(scheduler, "of-x", "x", "5Gi")
    claim(scheduler, "small", of="disks", size="5Gi")
    claim(scheduler, "large", of="disks", size="6Gi")
    assert node_of(scheduler, user_of("small")) == "a"
    assert node_of(scheduler, user_of("large", uid="q")) == ""
    assert "2 node(s) did not have enough free storage" in refusal(scheduler).message
    capacity(scheduler, "of-y", "y", "10Gi")
    scheduler.run(now=20.0)
    assert scheduler.state.pods["q"].node == "b"


def test_placement_names_the_time_within_which_the_claims_must_be_bound() -> None:
    scheduler = scheduler_of(
        """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  pluginConfig: [{name: VolumeBinding, args: {bindTimeoutSeconds: 30}}]
""",
        a="x",
    )
    csi(scheduler)
    claim(scheduler, of="disks")
    assert node_of(scheduler, user_of("data")) == "a"
    allocation = scheduler.state.assumed.ledgers.holders("a")["p"].allocation
    assert allocation.bind_timeout_seconds == 30


def test_failed_binding_gives_the_volume_back_and_the_pod_is_placed_again() -> None:
    scheduler = scheduler_of(a="x", b="x")
    volume(scheduler, "on-a", host="a", size="1Gi")
    claim(scheduler)
    assert node_of(scheduler, user_of("data")) == "a"
    volume(scheduler, "on-a", host="a", claim="stolen", claim_uid="1", phase="Bound")
    volume(scheduler, "on-b", host="b")
    placement = scheduler.state.pods["p"].seq
    failed = PodBindFailed(node="a", placement=placement, reason="VolumeBinding", message="binding volumes")
    scheduler.log.say("podspec", "p", failed)
    scheduler.run(now=20.0)
    scheduler.run(now=21.0)  # after a back-off
    assert scheduler.state.pods["p"].node == "b"
    assert chosen(scheduler) == {"data": "on-b"}


# --- claims that no scheduler binds ----------------------------------------------------------------------------------


def test_pod_with_an_unbound_immediate_claim_waits_until_it_is_bound() -> None:
    scheduler = scheduler_of(a="x")
    storage_class(scheduler, "now", waits=False)
    claim(scheduler, of="now")
    assert node_of(scheduler, user_of("data")) == ""
    refused = refusal(scheduler)
    assert refused.message.startswith("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims")
    assert refused.diagnosis is not None
    assert refused.diagnosis.pre_filter_details == ["claim data of storage class now is not bound"]
    volume(scheduler, "disk", of="now", claim="data")
    claim(scheduler, of="now", bound_to="disk")
    scheduler.run(now=20.0)
    assert scheduler.state.pods["p"].node == "a"
    assert chosen(scheduler) == {}


def test_storage_class_that_appears_helps() -> None:
    scheduler = scheduler_of(a="x")
    claim(scheduler, of="disks")
    assert node_of(scheduler, user_of("data")) == ""
    csi(scheduler)
    scheduler.run(now=20.0)
    assert scheduler.state.pods["p"].node == "a"


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            {"phase": "Lost", "volumeName": "v"},
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"',
        ),
        ({"deleted": True}, 'persistentvolumeclaim "data" is being deleted'),
    ],
)
def test_claim_that_cannot_be_used_is_named(found: dict[str, Any], message: str) -> None:
    scheduler = scheduler_of(a="x")
    claim(scheduler, **found)
    assert node_of(scheduler, user_of("data")) == ""
    assert message in refusal(scheduler).message


def test_bound_claim_without_its_volume_fits_nowhere_until_the_volume_appears() -> None:
    scheduler = scheduler_of(a="x")
    claim(scheduler, bound_to="disk")
    assert node_of(scheduler, user_of("data")) == ""
    assert "pvc(s) bound to non-existent pv(s)" in refusal(scheduler).message
    volume(scheduler, "disk", claim="data")
    scheduler.run(now=20.0)
    assert scheduler.state.pods["p"].node == "a"


def scratch(uid: str) -> Pod:
    return pod(uid, {"cpu": "1"}, volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}])


def test_ephemeral_volume_waits_for_a_claim_of_its_own_pod() -> None:
    scheduler = scheduler_of(a="x")
    csi(scheduler)
    assert node_of(scheduler, scratch("p")) == ""
    waits = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"'
    assert waits in refusal(scheduler).message
    claim(scheduler, "p-scratch", of="disks", owner="other")
    scheduler.run(now=20.0)
    assert "PVC default/p-scratch was not created for pod default/p (pod is not owner)" in refusal(scheduler).message
    claim(scheduler, "p-scratch", of="disks", owner="p")
    scheduler.run(now=40.0)
    assert chosen(scheduler) == {"p-scratch": ""}
    assert node_of(scheduler, scratch("q")) == ""  # equal but for its name: it has a claim of its own


def test_every_pod_that_waits_for_a_claim_is_woken() -> None:
    scheduler = scheduler_of(a="x")
    csi(scheduler)
    for uid in ("p", "q", "r"):
        assert node_of(scheduler, user_of("data", uid=uid)) == ""
    claim(scheduler, of="disks")
    scheduler.run(now=20.0)
    assert [scheduler.state.pods[uid].node for uid in ("p", "q", "r")] == ["a", "a", "a"]


def test_deleted_pod_is_not_remembered_by_its_claim() -> None:
    scheduler = scheduler_of(a="x")
    csi(scheduler)
    assert node_of(scheduler, user_of("data")) == ""
    scheduler.log.remove_pod("p")
    scheduler.run(now=20.0)
    claim(scheduler, of="disks")
    scheduler.run(now=40.0)
    assert "p" not in scheduler.state.pods
    assert scheduler.state.books.volumes.waiting.take_woken() == []
    assert node_of(scheduler, user_of("data", uid="q"), now=40.0) == "a"


def test_claim_that_is_deleted_stops_its_pod() -> None:
    scheduler = scheduler_of(a="x")
    csi(scheduler)
    claim(scheduler, of="disks")
    forget(scheduler, "persistentvolumeclaims", "data", "default")
    assert node_of(scheduler, user_of("data")) == ""
    assert 'persistentvolumeclaim "data" not found' in refusal(scheduler).message


def test_waiting_pod_is_woken_by_the_deletion_of_its_claim_or_storage_class() -> None:
    scheduler = scheduler_of(a="x")
    storage_class(scheduler, "now", waits=False)
    claim(scheduler, of="now")
    assert node_of(scheduler, user_of("data")) == ""
    assert "pod has unbound immediate PersistentVolumeClaims" in refusal(scheduler).message
    forget(scheduler, "storageclasses", "now")
    scheduler.run(now=20.0)
    assert refusal(scheduler).attempt == 2
    forget(scheduler, "persistentvolumeclaims", "data", "default")
    scheduler.run(now=40.0)
    assert refusal(scheduler).attempt == 3
    assert 'persistentvolumeclaim "data" not found' in refusal(scheduler).message
    assert scheduler.state.books.volumes.waiting.take_woken() == []


# --- limits of nodes -------------------------------------------------------------------------------------------------


def limit(scheduler: Scheduler, name: str, count: int) -> None:
    drivers = [{"name": "disks.example.com", "allocatable": {"count": count}}]
    say(scheduler, "csinodes", {"metadata": {"name": name}, "spec": {"drivers": drivers}})


def test_node_attaches_as_many_volumes_of_a_driver_as_it_can() -> None:
    scheduler = scheduler_of(a="x")
    csi(scheduler)
    limit(scheduler, "a", 2)
    for name in ("one", "two", "three"):
        claim(scheduler, name, of="disks")
    assert node_of(scheduler, user_of("one", uid="p")) == "a"
    assert node_of(scheduler, user_of("one", "two", uid="q")) == "a"  # a shared volume counts once
    assert node_of(scheduler, user_of("three", uid="r")) == ""
    assert "1 node(s) exceed max volume count" in refusal(scheduler).message
    scheduler.log.remove_pod("q")
    scheduler.run(now=20.0)
    assert scheduler.state.pods["r"].node == "a"


def test_higher_limit_helps_and_other_drivers_do_not_count() -> None:
    scheduler = scheduler_of(a="x")
    csi(scheduler)
    limit(scheduler, "a", 0)
    volume(scheduler, "disk", host="a")
    claim(scheduler, "local")
    claim(scheduler, "remote", of="disks")
    assert node_of(scheduler, user_of("local", uid="p")) == "a"
    assert node_of(scheduler, user_of("remote", uid="q")) == ""
    limit(scheduler, "a", 1)
    scheduler.run(now=20.0)
    assert scheduler.state.pods["q"].node == "a"


def attach(scheduler: Scheduler, name: str, volume_name: str, node_name: str) -> None:
    """The volume is attached to the node by the driver of the class `disks`."""
    source = {"persistentVolumeName": volume_name}
    spec = {"attacher": "disks.example.com", "nodeName": node_name, "source": source}
    say(scheduler, "volumeattachments", {"metadata": {"name": name}, "spec": spec})


def attached(scheduler: Scheduler, *rows: int) -> list[int]:
    """How many volumes without a pod occupy places of the nodes at these positions."""
    scheduler.run(now=10.0)
    counted = scheduler.state.books.volumes.attachments.unused("disks.example.com")
    return [int(counted[row]) for row in rows]


def disk(scheduler: Scheduler, name: str, of_claim: str) -> None:
    """A volume of the driver on node `a` that is bound to a claim."""
    driver = {"driver": "disks.example.com"}
    volume(scheduler, name, of="disks", host="a", claim=of_claim, claim_uid=f"uid-of-{of_claim}", csi=driver)


def test_volume_that_is_attached_without_a_pod_occupies_a_place_until_it_is_detached() -> None:
    scheduler = scheduler_of(a="x")
    csi(scheduler)
    limit(scheduler, "a", 1)
    disk(scheduler, "left", "old")
    attach(scheduler, "of-left", "left", "a")
    claim(scheduler, "new", of="disks")

    assert node_of(scheduler, user_of("new", uid="q")) == ""
    assert "1 node(s) exceed max volume count" in refusal(scheduler).message

    forget(scheduler, "volumeattachments", "of-left")
    scheduler.run(now=20.0)
    assert scheduler.state.pods["q"].node == "a"


def test_attached_volume_of_a_pod_counts_once() -> None:
    """However the objects arrive: attachment, volume, node and pod may come and go in any order."""
    scheduler = scheduler_of(a="x", b="x")
    csi(scheduler)
    attach(scheduler, "of-one", "one", "a")
    assert attached(scheduler, 0, 1) == [0, 0]  # the volume is not known yet
    disk(scheduler, "one", "data")
    assert attached(scheduler, 0, 1) == [1, 0]
    claim(scheduler, "data", of="disks", bound_to="one")
    assert node_of(scheduler, user_of("data")) == "a"
    assert attached(scheduler, 0, 1) == [0, 0]
    attach(scheduler, "of-one", "one", "b")
    assert attached(scheduler, 0, 1) == [0, 1]
    scheduler.log.remove_node("b")
    scheduler.run(now=30.0)
    scheduler.log.add_node(node("c", labels={ZONE: "x", HOST: "c"}))
    assert attached(scheduler, 0, 1) == [0, 0]  # `c` has the row of `b` now


# --- which changes wake a pod ----------------------------------------------------------------------------------------


def helps(scheduler: Scheduler, uid: str) -> bool:
    """Whether the events since the last call may help a waiting pod. They are folded, and nobody is woken."""
    for stored in scheduler.log.events[scheduler.state.log.position :]:
        fold(scheduler.state, stored)
    volumes, subject = scheduler.state.books.volumes, scheduler.state.pods[uid].subject
    assert subject is not None
    assert subject.claims is not None
    return volumes.take_helped().may_help(volumes.traits(subject.claims))


def test_only_changes_of_its_own_storage_wake_a_pod() -> None:
    scheduler = scheduler_of(a="x", b="y")
    csi(scheduler)
    storage_class(scheduler, "other", "others.example.com")
    claim(scheduler)
    claim(scheduler, "log", of="disks")
    limit(scheduler, "a", 0)
    attach(scheduler, "first", "disk", "a")
    assert node_of(scheduler, user_of("data", "log")) == ""
    assert not helps(scheduler, "p")

    volume(scheduler, "of-another-class", of="other")
    claim(scheduler, "another", of="other")
    storage_class(scheduler, "third")
    attach(scheduler, "second", "disk", "b")
    limit(scheduler, "b", 1)  # it had no limit before
    say(scheduler, "csidrivers", {"metadata": {"name": "others.example.com"}, "spec": {"storageCapacity": True}})
    assert not helps(scheduler, "p")

    changes: dict[str, Callable[[], None]] = {
        "volume": lambda: volume(scheduler, "disk"),
        "claim": lambda: claim(scheduler, size="2Gi"),
        "class": lambda: storage_class(scheduler),
        "free storage": lambda: capacity(scheduler, "of-x", "x", "5Gi"),
        "higher limit": lambda: limit(scheduler, "a", 1),
        "no limit": lambda: forget(scheduler, "csinodes", "b"),
        "detached": lambda: forget(scheduler, "volumeattachments", "first"),
        "driver": lambda: say(scheduler, "csidrivers", {"metadata": {"name": "disks.example.com"}, "spec": {}}),
    }
    helped: dict[str, bool] = {}
    for name, change in changes.items():
        change()
        helped[name] = helps(scheduler, "p")
    assert helped == dict.fromkeys(changes, True)
    assert not helps(scheduler, "p")


def test_pod_without_claims_is_asked_by_no_volume_plugin() -> None:
    scheduler = scheduler_of(a="x")
    plain = scheduler.state.cluster.pod_classes.read(pod("p", {"cpu": "1"})).subject
    engine = scheduler.state.frameworks.first.engine
    assert not engine.cross_node_filters(plain).filters
    lists = engine.profile.concerning(plain.pod_class.concerned)
    running = {plugin.name for point in EXTENSION_POINTS for plugin in lists.at(point)}
    assert not running & {"VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits"}
