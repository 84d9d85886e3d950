"""A scheduler that starts from a snapshot knows what one knows that has folded the whole log."""

import copy
import random
from typing import Any, cast

import pytest
from koord_scheduler.domain.folding.log import fold
from koord_scheduler.domain.pods.record import Phase
from koord_scheduler.domain.replay.comparing import facts_digest
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koord_scheduler.domain.state.state import SchedulerState
from koordcore.events import CATALOGUE
from koordcore.events.objects.custom import CustomObjectObserved, custom_ref
from koordcore.events.scheduling.reservation import ReservationFailed
from koordcore.protocol import keys
from koordcore.values.timestamps import unix_seconds
from support.mutations import mutated
from support.scheduler.reservations import CREATED, ReservingScheduler, reservation, reserve, status
from support.scheduler.scheduling import SmallLog, frameworks, node

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
        for uid, each in state.cluster.reservations.entries.items()
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
    assert successor.state.cluster.reservations.entries["uid-r"].phase == "Failed"


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
            assert facts_digest(again) == facts_digest(whole)


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
