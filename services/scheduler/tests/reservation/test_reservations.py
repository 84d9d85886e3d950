"""Reservations from their object to their end, through queue, filters, scores, the log and back."""

import json

from koord_scheduler.domain.framework.extension_points import FILTER, RESERVE, SCORE
from koord_scheduler.domain.framework.gates import SchedulerGates
from koord_scheduler.domain.loop.controllers import status_facts
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.recompute import Recomputed, recompute
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.events import CATALOGUE
from koordcore.events.explanations import PodUnschedulable
from koordcore.events.pod import PodPlaced, PodReallocated
from koordcore.events.reservation import ReservationCollected, ReservationDeleted
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.state.aggregates import NodeLedger, PodState
from koordcore.values.timestamps import unix_seconds
from support.scheduler.reservations import (
    CREATED,
    ReservingScheduler,
    fold_of,
    reservation,
    reserve,
    status,
    sums,
    unreserve,
)
from support.scheduler.scheduling import SmallLog, frameworks, node, pod, with_metadata

T0 = unix_seconds(CREATED)


def web(uid: str, cpu: str = "1", memory: str = "1Gi", **more: str) -> Pod:
    return with_metadata(pod(uid, {"cpu": cpu, "memory": memory}), labels={"app": "web"}, annotations=more)


def placed_on(log: SmallLog) -> dict[str, str]:
    return {uid: state.node for uid, state in fold_of(log).of_kind(PodState).items() if state.node}


def started(*nodes: str, cpu: str = "4") -> tuple[SmallLog, ReservingScheduler]:
    log = SmallLog()
    for name in nodes:
        log.add_node(node(name, cpu=cpu))
    return log, ReservingScheduler(log)


def test_a_reservation_is_placed_and_keeps_its_room_for_its_owners() -> None:
    log, scheduler = started("n")
    reserve(log, reservation(requests={"cpu": "3", "memory": "2Gi"}, allocateOnce=False))
    log.add_pod(pod("other", {"cpu": "2"}))
    scheduler.live(T0)
    assert status(log).phase == "Available"
    assert placed_on(log) == {"uid-r": "n"}, "3 of 4 cores are reserved, so the other pod waits"
    log.add_pod(web("owner", "2"))
    scheduler.live(T0)
    assert placed_on(log) == {"uid-r": "n", "owner": "n"}
    found = status(log)
    assert (found.allocated, found.taken) == ({"cpu": 2000, "memory": 1 << 30}, {"cpu": 2000, "memory": 1 << 30})
    ledger = fold_of(log).of_kind(NodeLedger)["n"]
    assert ledger.requested == sums(ledger) == {"cpu": 3000, "memory": 2 << 30}
    row = scheduler.state.nodes.row("n")
    assert row is not None
    assert scheduler.state.nodes.requested[scheduler.state.nodes.column("cpu"), row] == 3000


def test_a_pod_goes_beyond_the_borders_of_its_reservation() -> None:
    log, scheduler = started("n")
    reserve(log, reservation(requests={"cpu": "2"}, allocateOnce=False))
    scheduler.live(T0)
    log.add_pod(web("owner", "3"))
    scheduler.live(T0)
    assert placed_on(log)["owner"] == "n"
    assert status(log).allocated == {"cpu": 3000}
    assert status(log).taken == {"cpu": 2000}
    assert fold_of(log).of_kind(NodeLedger)["n"].requested["cpu"] == 3000


def test_a_restricted_reservation_gives_nothing_beyond_its_borders() -> None:
    log, scheduler = started("n")
    affinity = json.dumps({"name": "r"})
    reserve(log, reservation(requests={"cpu": "2"}, allocateOnce=False, allocatePolicy="Restricted"))
    scheduler.live(T0)
    log.add_pod(web("owner", "3", **{keys.RESERVATION_AFFINITY: affinity}))
    scheduler.live(T0)
    assert "owner" not in placed_on(log)
    reasons = [each.event for each in scheduler.explanations if each.uid == "owner"]
    assert isinstance(reasons[0], PodUnschedulable)
    assert "Reservation(s) Insufficient cpu, requested: 3000, used: 0, capacity: 2000" in reasons[0].message


def test_the_first_owner_consumes_a_reservation_that_is_allocated_once() -> None:
    log, scheduler = started("n")
    reserve(log, reservation(requests={"cpu": "3"}))
    scheduler.live(T0)
    log.add_pod(web("first", "1"))
    log.add_pod(web("second", "1"))
    scheduler.live(T0 + 5)
    found = status(log)
    assert (found.phase, [owner.uid for owner in found.owners]) == ("Succeeded", ["first"])
    events = [CATALOGUE.read(stored) for stored in log.events]
    uses = {each.name: each.allocation.reservation for each in events if isinstance(each, PodPlaced)}
    assert uses["first"] is not None
    assert uses["second"] is None, "it takes room of the node"
    assert fold_of(log).of_kind(NodeLedger)["n"].requested["cpu"] == 2000, "the unused rest is free again"


def test_the_owner_goes_where_its_reservation_is() -> None:
    log, scheduler = started(*(f"n{index}" for index in range(6)))
    reserve(log, reservation(template={"nodeName": "n4"}))
    scheduler.live(T0)
    assert status(log).node == "n4"
    log.add_pod(web("owner"))
    scheduler.live(T0)
    assert placed_on(log)["owner"] == "n4"


def test_a_pod_whose_reservation_never_comes_does_not_keep_others_waiting() -> None:
    log, scheduler = started("n")
    reserve(log, reservation("r0", requests={"cpu": "1"}, allocateOnce=False))
    for name in ("never", "later"):
        log.add_pod(web(f"owner-{name}", "1", **{keys.RESERVATION_AFFINITY: json.dumps({"name": name})}))
    scheduler.live(T0)
    reserve(log, reservation("later", requests={"cpu": "1"}, allocateOnce=False))
    scheduler.live(T0 + 60)
    assert placed_on(log).keys() == {"uid-r0", "uid-later", "owner-later"}


def test_pods_that_came_before_the_reservation_find_it() -> None:
    log, scheduler = started("n")
    log.add_pod(web("owner", "1", **{keys.RESERVATION_AFFINITY: json.dumps({"name": "r"})}))
    scheduler.live(T0)
    assert placed_on(log) == {}
    reserve(log, reservation())
    scheduler.live(T0 + 100)
    assert placed_on(log)["owner"] == "n"


def test_an_expired_reservation_returns_what_it_holds_and_its_owners_stay() -> None:
    log, scheduler = started("n")
    reserve(log, reservation(requests={"cpu": "3"}, ttl="1m", allocateOnce=False))
    scheduler.live(T0)
    log.add_pod(web("owner", "1"))
    scheduler.live(T0)
    log.add_pod(pod("other", {"cpu": "2"}))
    scheduler.live(T0)
    assert "other" not in placed_on(log)
    scheduler.live(T0 + 61)
    scheduler.live(T0 + 100)
    assert status(log).phase == "Failed"
    assert placed_on(log) == {"owner": "n", "other": "n"}
    assert fold_of(log).of_kind(NodeLedger)["n"].requested["cpu"] == 3000


def test_a_reservation_fails_with_its_node_and_is_not_placed_again() -> None:
    log, scheduler = started("n", "m")
    reserve(log, reservation(template={"nodeName": "n"}))
    scheduler.live(T0)
    log.remove_node("n")
    scheduler.live(T0 + 1)
    scheduler.live(T0 + 2)
    assert status(log).phase == "Failed"
    assert "uid-r" not in placed_on(log)


def test_a_deleted_reservation_is_released() -> None:
    log, scheduler = started("n")
    reserve(log, reservation())
    scheduler.live(T0)
    unreserve(log, "r")
    scheduler.live(T0)
    assert placed_on(log) == {}
    assert fold_of(log).of_kind(NodeLedger)["n"].requested == {}
    assert scheduler.state.books.reservations.entries == {}


def test_owners_of_a_deleted_reservation_use_it_no_longer_if_the_gate_says_so() -> None:
    log, scheduler = started("n")
    scheduler = ReservingScheduler(log, gates=SchedulerGates(clean_expired_reservation_allocated=True))
    reserve(log, reservation(requests={"cpu": "3"}, allocateOnce=False))
    scheduler.live(T0)
    log.add_pod(web("owner", "2"))
    scheduler.live(T0)
    assert uses(log, "owner") == "r"

    unreserve(log, "r")
    scheduler.live(T0 + 5)

    assert uses(log, "owner") == ""
    assert placed_on(log) == {"owner": "n"}
    assert fold_of(log).of_kind(NodeLedger)["n"].requested["cpu"] == 2000
    assert scheduler.state.books.reservations.entries == {}
    changed = [event for event in map(CATALOGUE.read, log.events) if isinstance(event, PodReallocated)]
    assert [event.reason for event in changed] == ["reservation-deleted"]


def test_snapshot_has_the_allocation_of_the_log_while_another_one_is_only_assumed() -> None:
    log, scheduler = started("n")
    gates = SchedulerGates(clean_expired_reservation_allocated=True)
    scheduler = ReservingScheduler(log, gates=gates)
    reserve(log, reservation(requests={"cpu": "3"}, allocateOnce=False))
    log.add_pod(web("owner", "2"))
    scheduler.live(T0)
    unreserve(log, "r")
    scheduler.run(T0)
    scheduler.state.status.due.next_control.clear()
    status_facts(scheduler.state, T0 + 5)
    assert len(scheduler.state.assumed.outbox) == 1
    restored = ReservingScheduler(log, gates=gates)
    load_state(restored.state, b"".join(Picture(scheduler.state).pieces()))

    used = restored.state.assumed.ledgers.holders("n")["owner"].allocation.reservation

    assert used is not None, "the log has not stored yet that the owner uses it no longer"
    restored.live(T0 + 5)
    assert uses(log, "owner") == ""


def test_the_next_leader_frees_owners_that_a_snapshot_names() -> None:
    log, scheduler = started("n")
    reserve(log, reservation(requests={"cpu": "3"}, allocateOnce=False))
    log.add_pod(web("owner", "2"))
    scheduler.live(T0)
    unreserve(log, "r")
    scheduler.live(T0)
    assert uses(log, "owner") == "r", "without the gate it keeps the annotation"
    successor = ReservingScheduler(log, gates=SchedulerGates(clean_expired_reservation_allocated=True))
    load_state(successor.state, b"".join(Picture(scheduler.state).pieces()))

    successor.live(T0 + 5)

    assert uses(log, "owner") == ""


def uses(log: SmallLog, uid: str) -> str:
    """Return the name of the Reservation that a pod uses; "" for none."""
    used = fold_of(log).of_kind(PodState)[uid].allocation.reservation
    return "" if used is None else used.name


def test_a_waiting_reservation_says_why_and_expires() -> None:
    log, scheduler = started("n")
    reserve(log, reservation(requests={"cpu": "9"}, ttl="1m"))
    scheduler.live(T0)
    (condition,) = status(log).conditions
    assert "Insufficient cpu" in condition.message
    scheduler.live(T0 + 61)
    assert status(log).phase == "Failed", "pitfall 28"
    assert status(log).node == ""


def test_a_pod_waits_until_its_reservation_takes_owners_again() -> None:
    log, scheduler = started("n")
    closed = reservation(requests={"cpu": "3"}, allocateOnce=False, unschedulable=True)
    reserve(log, closed)
    scheduler.live(T0)
    log.add_pod(web("owner", "2"))
    scheduler.live(T0)
    assert "owner" not in placed_on(log)
    reserve(log, {**closed, "spec": {**closed["spec"], "unschedulable": False}})
    scheduler.live(T0 + 30)
    assert placed_on(log)["owner"] == "n"


def test_a_pod_waits_until_an_owner_leaves_its_reservation() -> None:
    log, scheduler = started("n")
    reserve(log, reservation(requests={"cpu": "4"}, allocateOnce=False))
    scheduler.live(T0)
    for uid in ("first", "second"):
        log.add_pod(web(uid, "3"))
        scheduler.live(T0)
    assert "second" not in placed_on(log)
    log.remove_pod("first")
    scheduler.live(T0 + 30)
    scheduler.live(T0 + 60)  # the pod was woken, and its back-off is over
    assert placed_on(log) == {"uid-r": "n", "second": "n"}


def test_a_snapshot_contains_reservations() -> None:
    log, scheduler = started("n")
    reserve(log, reservation(requests={"cpu": "3"}, allocateOnce=False))
    scheduler.live(T0)
    log.add_pod(web("owner", "1"))
    scheduler.live(T0)
    restored = SchedulerState(frameworks())
    load_state(restored, b"".join(Picture(scheduler.state).pieces()))
    before, after = scheduler.state, restored
    row, other = before.nodes.row("n"), after.nodes.row("n")
    assert row is not None
    assert other is not None
    for name in ("cpu", "memory", "pods"):
        assert before.nodes.free[before.nodes.column(name), row] == after.nodes.free[after.nodes.column(name), other]
    (entry,) = after.books.reservations.entries.values()
    assert entry.is_available()
    assert entry.unused() == {"cpu": 2000}


def test_the_deletion_of_an_ended_reservation_is_requested_once_also_by_the_next_leader() -> None:
    log, scheduler = started("n")
    reserve(log, reservation(ttl="1m"))
    scheduler.live(T0)
    scheduler.live(T0 + 61)
    assert status(log).phase == "Failed"
    days = 2 * 86_400.0
    for turn in range(6):
        scheduler.live(T0 + days + 31 * turn)
    assert collected(log) == 1, "the object stays, for example because of a finalizer"

    successor = ReservingScheduler(log)
    load_state(successor.state, b"".join(Picture(scheduler.state).pieces()))
    refolded = ReservingScheduler(log)
    for turn in range(3):
        successor.live(T0 + 2 * days + 31 * turn)
        refolded.live(T0 + 2 * days + 31 * turn)
    assert collected(log) == 1

    unreserve(log, "r")
    successor.live(T0 + 3 * days)
    assert isinstance(CATALOGUE.read(log.events[-1]), ReservationDeleted)


def collected(log: SmallLog) -> int:
    """Return how often the deletion of a Reservation was requested."""
    return sum(isinstance(CATALOGUE.read(stored), ReservationCollected) for stored in log.events)


def test_plain_pods_pay_nothing() -> None:
    log, scheduler = started("n")
    reserve(log, reservation())
    log.add_pod(pod("plain", {"cpu": "1"}))
    scheduler.live(T0)
    record = scheduler.state.pods["plain"]
    plugins = scheduler.state.frameworks.framework_of(record).plugins_for(record)
    asked = [each.name for each in (*plugins.at(FILTER), *plugins.at(SCORE), *plugins.at(RESERVE))]
    assert "NodeResourcesFit" in asked
    assert "Reservation" not in asked


def test_reservations_with_and_without_a_policy_exclude_each_other() -> None:
    log, scheduler = started("n")
    reserve(log, reservation("plain", {"cpu": "1"}, allocateOnce=False))
    reserve(log, reservation("restricted", {"cpu": "1"}, allocateOnce=False, allocatePolicy="Restricted"))
    reserve(log, reservation("other", {"cpu": "1"}, allocateOnce=False))
    scheduler.live(T0)
    phases = {name: status(log, name).phase for name in ("plain", "restricted", "other")}
    assert phases == {"plain": "Available", "restricted": "Pending", "other": "Available"}
    (condition,) = status(log, "restricted").conditions
    assert "reservation allocate policy conflict" in condition.message


def test_placements_with_reservations_are_decided_again_from_the_log() -> None:
    log, scheduler = started("n", "m")
    reserve(log, reservation(requests={"cpu": "3"}, allocateOnce=False))
    scheduler.live(T0)
    log.add_pod(web("owner", "2"))
    scheduler.live(T0)
    placements = [stored for stored in log.events if stored.type == "PodPlaced"]
    assert [stored.ref.id for stored in placements] == ["uid-r", "owner"]
    for stored in placements:
        again = recompute(SchedulerState(frameworks()), log.events, [], stored.seq)
        assert isinstance(again, Recomputed)
        assert again.agrees
