"""A scheduler that starts from a snapshot knows what one knows that has folded the whole log."""

import copy
import random
from typing import Any, cast

import msgspec
import pytest
from koord_scheduler.domain.cluster.record import Phase
from koord_scheduler.domain.loop.controllers import unhealthy_device_facts
from koord_scheduler.domain.loop.folding.log import fold
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.gang.group import ChildState
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koord_scheduler.domain.replay.state_hash import state_hash
from koordcore.events import CATALOGUE
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.events.pod import PodNominated, UnhealthyDevice
from koordcore.events.quota import QuotaStatusComputed
from koordcore.events.reservation import ReservationFailed
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.values.timestamps import unix_seconds
from support.mutations import mutated
from support.scheduler.devices import CORE, RATIO, device, gpu
from support.scheduler.reservations import CREATED, ReservingScheduler, reservation, reserve, status
from support.scheduler.scheduling import Scheduler, SmallLog, frameworks, node, pod, with_metadata

T0 = unix_seconds(CREATED)
GOOD = reservation(ttl="1m")


def restored(state: SchedulerState) -> SchedulerState:
    """The state after a restart."""
    again = SchedulerState(frameworks())
    load_state(again, b"".join(Picture(state).pieces()))
    return again


def folded(log: SmallLog) -> SchedulerState:
    """The fold of the whole log."""
    state = SchedulerState(frameworks())
    for stored in log.events:
        fold(state, stored)
    return state


def reservations(state: SchedulerState) -> dict[str, Any]:
    """What a scheduler knows of each Reservation, and of its reserve pod."""
    entries = {
        uid: (each.name, each.phase, each.node, each.terms, each.limits, each.is_available(), each.ended_at)
        for uid, each in state.books.reservations.entries.items()
    }
    pods = {
        uid: (each.phase, each.node, each.pod is not None and each.pod.status.phase) for uid, each in state.pods.items()
    }
    return {"entries": entries, "pods": pods}


def changed(path: str, value: object) -> dict[str, Any]:
    """GOOD with another value at a path in its spec; None removes the field."""
    document = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    at: Any = document["spec"]
    for part in parents:
        at = at[part]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return document


def resized_and_malformed() -> dict[str, Any]:
    """A Reservation with an amount that is no quantity, so that its resize cannot be read."""
    container = {"name": "main", "resources": {"requests": {"cpu": "much"}}}
    document = changed("template.spec.containers", [container])
    document["metadata"]["annotations"] = {keys.RESERVATION_RESIZE_ALLOCATABLE: '{"resources":{"cpu":"1"}}'}
    return document


MALFORMED = {
    "owners of another type": changed("owners", "all"),
    "no template": changed("template", None),
    "an amount that is no quantity": resized_and_malformed(),
}


@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_reservation_that_becomes_malformed_fails_gives_its_node_back_and_stays_failed(
    malformed: dict[str, Any],
) -> None:
    log = SmallLog()
    log.add_node(node("n"))
    scheduler = ReservingScheduler(log)
    reserve(log, GOOD)
    scheduler.live(T0)
    assert scheduler.state.pods["uid-r"].phase is Phase.PLACED
    reserve(log, malformed)
    scheduler.live(T0 + 1)
    assert reservations(restored(scheduler.state)) == reservations(scheduler.state) == reservations(folded(log))

    scheduler.live(T0 + 61)
    assert status(log).phase == "Failed"
    assert not scheduler.state.pods["uid-r"].node, "it is released"
    successor = ReservingScheduler(log)
    load_state(successor.state, b"".join(Picture(scheduler.state).pieces()))
    before = len(log.events)
    for turn in range(3):
        successor.live(T0 + 100 + 31 * turn)
    assert len(log.events) == before, "it does not take the Reservation for deleted"
    assert reservations(successor.state) == reservations(folded(log))
    assert successor.state.books.reservations.entries["uid-r"].phase == "Failed"


def test_histories_with_malformed_reservations_restore_what_they_fold() -> None:
    rng = random.Random(20261127)
    log = SmallLog()
    for name in ("n", "m"):
        log.add_node(node(name, cpu="4"))
    scheduler = ReservingScheduler(log)
    for number in range(300):
        found: Any = mutated(rng, GOOD) if rng.random() < 0.7 else GOOD
        name = f"r{number % 5}"
        document = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        metadata: Any = document.get("metadata")
        kept = cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}
        reserve(log, {**document, "metadata": {**kept, "name": name, "uid": f"uid-{name}"}})
        if number % 20 == 0:
            scheduler.live(T0 + number)
            whole, again = folded(log), restored(scheduler.state)
            assert reservations(again) == reservations(whole)
            assert state_hash(again) == state_hash(whole) == state_hash(scheduler.state)


def test_the_failure_of_a_reservation_names_what_it_held_on_a_deleted_node_after_a_restart() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    scheduler = ReservingScheduler(log)
    reserve(log, GOOD)
    scheduler.live(T0)
    log.remove_node("n")
    scheduler.follow()
    successor = ReservingScheduler(log)
    load_state(successor.state, b"".join(Picture(scheduler.state).pieces()))
    successor.live(T0 + 1)
    [failed] = [event for event in map(CATALOGUE.read, log.events) if isinstance(event, ReservationFailed)]
    assert failed.allocatable == {"cpu": 2000, "memory": 2 * 2**30}


@pytest.mark.parametrize(
    ("plural", "namespace", "readable", "unreadable"),
    [
        ("elasticquotas", "default", {"spec": {"max": {"cpu": "4"}}}, {"spec": {"max": "much"}}),
        ("podgroups", "default", {"spec": {"minMember": 3}}, {"spec": {"minMember": "three"}}),
        ("poddisruptionbudgets", "default", {"spec": {"selector": {"matchLabels": {"a": "b"}}}}, {"spec": "none"}),
        ("services", "default", {"spec": {"selector": {"a": "b"}}}, {"spec": {"selector": "a"}}),
        ("noderesourcetopologies", "", {"zones": []}, {"zones": "none"}),
        ("devices", "", {"spec": {"devices": []}}, {"metadata": {"name": 7}}),
        ("storageclasses", "", {"provisioner": "p"}, {"provisioner": []}),
    ],
)
def test_the_last_object_that_can_be_read_counts_also_after_a_restart(
    plural: str, namespace: str, readable: dict[str, Any], unreadable: dict[str, Any]
) -> None:
    log, ref = SmallLog(), custom_ref(plural, namespace, "x")
    log.add_node(node("x"))
    metadata = {"namespace": namespace, "name": "x"}
    for document in (readable, unreadable):
        log.say(ref.kind, ref.id, CustomObjectObserved(object={"metadata": metadata, **document}))
    whole = folded(log)
    assert [sentence for sentence in whole.cluster.warnings if plural in sentence]
    again = restored(whole)
    assert again.mirror.objects[ref.id].object == {"metadata": metadata, **readable}
    assert not again.cluster.warnings


def member(uid: str, minimum: int) -> Pod:
    """A pod of the gang `g` that states a minimum of its members."""
    stated = {keys.GANG_NAME: "g", keys.GANG_MIN_AVAILABLE: str(minimum)}
    return with_metadata(pod(uid, {"cpu": "1"}), annotations=stated)


def gangs(state: SchedulerState) -> dict[str, Any]:
    """What a scheduler knows of each gang, and the states of its members."""
    return {
        gang.id: (
            gang.parameters,
            gang.created_at,
            gang.status,
            None if gang.group is None else (gang.group.id, gang.group.once_satisfied),
            {uid: each.state for uid, each in gang.known.items()},
        )
        for gang in state.books.gangs.roster.gangs.values()
    }


def with_phase(known: Pod, phase: str) -> Pod:
    """The pod in another phase."""
    return msgspec.structs.replace(known, status=msgspec.structs.replace(known.status, phase=phase))


def bound_to(known: Pod, name: str) -> Pod:
    """The pod as the API server has bound it."""
    return msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, node_name=name))


def test_a_gang_keeps_what_a_deleted_pod_said_of_it() -> None:
    log = SmallLog()
    log.add_pod(member("first", 3))
    log.add_pod(member("second", 2))
    log.remove_pod("first")
    whole = folded(log)
    gang = whole.books.gangs.roster.gang("default/g")
    assert gang is not None
    assert gang.parameters is not None
    assert gang.parameters.min_members == 3
    assert gangs(restored(whole)) == gangs(whole)


def test_a_gang_whose_pod_group_is_deleted_does_not_return_with_a_restart() -> None:
    log, ref = SmallLog(), custom_ref("podgroups", "default", "g")
    log.add_pod(member("p", 2))
    metadata = {"namespace": "default", "name": "g"}
    log.say(ref.kind, ref.id, CustomObjectObserved(object={"metadata": metadata, "spec": {"minMember": 1}}))
    log.say(ref.kind, ref.id, CustomObjectDeleted(kind="PodGroup", namespace="default", name="g"))
    whole = folded(log)
    assert whole.books.gangs.roster.gang("default/g") is None
    assert gangs(restored(whole)) == gangs(whole)
    log.add_pod(with_metadata(member("p", 2), labels={"seen": "again"}))
    assert folded(log).books.gangs.roster.gang("default/g") is not None


@pytest.mark.parametrize("is_bound", [False, True])
def test_a_member_that_has_ended_keeps_its_state(*, is_bound: bool) -> None:
    log = SmallLog()
    log.add_node(node("n"))
    scheduler = ReservingScheduler(log)
    for uid in ("a", "b"):
        log.add_pod(member(uid, 2))
    scheduler.live(T0)
    if is_bound:
        log.add_pod(bound_to(member("a", 2), "n"))
    log.add_pod(with_phase(bound_to(member("a", 2), "n") if is_bound else member("a", 2), "Succeeded"))
    scheduler.live(T0 + 1)
    assert not scheduler.state.pods["a"].node, "it is released"
    assert gangs(restored(scheduler.state)) == gangs(scheduler.state) == gangs(folded(log))


def test_a_member_that_ended_before_it_was_bound_satisfies_no_group_after_a_restart() -> None:
    log = SmallLog()
    log.add_pod(member("p", 2))
    log.add_pod(with_phase(bound_to(member("p", 2), "n"), "Succeeded"))
    whole = folded(log)
    assert whole.books.gangs.roster.satisfied_groups() == []
    assert gangs(restored(whole)) == gangs(whole)


@pytest.mark.parametrize("of", ["koord-scheduler", "other"])
def test_an_ended_pod_requests_nothing_of_its_quota(of: str) -> None:
    log = SmallLog()
    log.add_node(node("n"))
    known = bound_to(pod("p", {"cpu": "1"}, schedulerName=of), "n")
    log.add_pod(known)
    assert folded(log).books.quotas.forest.nodes[keys.DEFAULT_QUOTA].used == {"cpu": 1000}
    log.add_pod(with_phase(known, "Failed"))
    for state in (whole := folded(log), restored(whole)):
        quota = state.books.quotas.forest.nodes[keys.DEFAULT_QUOTA]
        assert (quota.used.get("cpu", 0), quota.request.get("cpu", 0)) == (0, 0)
        assert "p" not in state.books.quotas.pods


def test_a_bound_pod_counts_in_quota_and_gang_although_its_node_was_deleted_for_a_while() -> None:
    log = SmallLog()
    log.add_node(node("n"))
    scheduler = ReservingScheduler(log)
    log.add_pod(member("p", 1))
    scheduler.live(T0)
    log.add_pod(bound_to(member("p", 1), "n"))
    scheduler.live(T0)
    log.remove_node("n")
    scheduler.live(T0)
    log.add_node(node("n"))
    scheduler.live(T0)
    assert not scheduler.state.pods["p"].node
    for state in (scheduler.state, folded(log), restored(scheduler.state)):
        assert state.books.quotas.forest.nodes[keys.DEFAULT_QUOTA].used == {"cpu": 1000}
        assert state.books.gangs.roster.members["p"].state is ChildState.BOUND


def test_devices_whose_object_was_deleted_stay_unhealthy() -> None:
    log, ref = SmallLog(), custom_ref("devices", "", "n")
    log.add_node(node("n", more={CORE: "100", RATIO: "100"}))
    log.say(ref.kind, ref.id, CustomObjectObserved(object=device("n", [gpu(0, numa=0, pcie="a")])))
    scheduler = ReservingScheduler(log)
    log.add_pod(pod("p", {"cpu": "1", CORE: "100", RATIO: "100"}))
    scheduler.live(T0)
    assert scheduler.state.pods["p"].node == "n"
    log.say(ref.kind, ref.id, CustomObjectDeleted(kind="Device", name="n"))
    scheduler.follow()
    again = restored(scheduler.state)
    assert again.books.devices.by_node == scheduler.state.books.devices.by_node == folded(log).books.devices.by_node
    assert [event.devices for _, event in unhealthy_device_facts(again)] == [
        [UnhealthyDevice(type="gpu", minor=0, id="GPU-0")]
    ]


def test_a_quota_status_that_comes_after_the_quota_is_deleted_is_not_kept() -> None:
    log, ref = SmallLog(), custom_ref("elasticquotas", "default", "q")
    metadata = {"namespace": "default", "name": "q"}
    log.say(ref.kind, ref.id, CustomObjectObserved(object={"metadata": metadata, "spec": {"max": {"cpu": "4"}}}))
    log.say(ref.kind, ref.id, CustomObjectDeleted(kind="ElasticQuota", namespace="default", name="q"))
    said = QuotaStatusComputed(name="q", namespace="default")
    log.say("quota", "q", said)
    state = folded(log)
    assert state.books.quota.published == {}
    assert state.books.quota.takes(said), "the next quota of this name gets a status"


def after_a_restart(log: SmallLog, snapshot: bytes) -> Scheduler:
    """A scheduler that starts from the snapshot, or from the beginning of the log if it is empty, on a copy of it."""
    scheduler = Scheduler(copy.deepcopy(log))
    if snapshot:
        load_state(scheduler.state, snapshot)
    return scheduler


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_preemption_chooses_the_same_nodes_after_a_restart(seed: int) -> None:
    rng, log, names = random.Random(seed), SmallLog(), list[str]()
    for number in range(30):
        if names and rng.random() < 0.4:
            log.remove_node(names.pop(rng.randrange(len(names))))
        else:
            names.append(f"n{number}")
            log.add_node(node(names[-1], cpu="4"))
    for number in range(len(names)):
        log.add_pod(pod(f"low{number}", {"cpu": "4"}, priority=1))
    scheduler = Scheduler(log)
    scheduler.run(0.0)
    snapshot = b"".join(Picture(scheduler.state).pieces())
    chosen: list[list[tuple[str, str]]] = []
    for again in (after_a_restart(log, b""), after_a_restart(log, snapshot)):
        again.follow()
        for number in range(5):
            again.log.add_pod(pod(f"high{number}", {"cpu": "3"}, priority=9))
        again.run(400.0)
        events = [(stored.ref.id, CATALOGUE.read(stored)) for stored in again.log.events]
        chosen.append([(uid, event.node) for uid, event in events if isinstance(event, PodNominated)])
    assert len(chosen[0]) == 5
    assert chosen[0] == chosen[1]
