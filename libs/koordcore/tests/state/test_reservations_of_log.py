"""The status of a Reservation, from the facts of placements, ledgers and its end."""

from koordcore.events.envelope import name_token
from koordcore.events.node_ledger import PodOnNode
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodeLedger, PodState, ReservationState
from koordcore.state.reservations import reservation_status, unused_amounts
from koordcore.state.reserved_amounts import taken_from_reservations
from koordcore.values.allocation import Allocation, ReservationUse
from support.histories.actions import Action
from support.histories.history import history

PLACED_AT = "2026-01-01T00:00:05.000000Z"


def _entry(uid: str, requests: dict[str, int], used: ReservationUse | None = None) -> PodOnNode:
    return PodOnNode(
        uid=uid,
        namespace="default",
        name=f"name-{uid}",
        requests=requests,
        qos="LS",
        kube_qos="Burstable",
        priority_class="koord-prod",
        allocation=Allocation(reservation=used),
    )


RESERVATION = _entry("r", {"cpu": 4000, "memory": 100}, ReservationUse(name="resv", uid="r"))
WITHIN = _entry("b", {"cpu": 1000}, ReservationUse(name="resv", uid="r", amounts={"cpu": 1000}))
BEYOND = _entry("a", {"cpu": 5000, "example.com/x": 1}, ReservationUse(name="resv", uid="r", amounts={"cpu": 3000}))
PLACED = PodState(
    seq=1,
    namespace="default",
    name="resv",
    node="n",
    requests={"cpu": 4000, "memory": 100},
    placed_at=PLACED_AT,
    allocation=RESERVATION.allocation,
)


def _ledger(*entries: PodOnNode) -> NodeLedger:
    return NodeLedger(seq=2, pods={entry.uid: entry for entry in entries})


def test_an_available_reservation_with_an_owner_beyond_its_borders() -> None:
    status = reservation_status("r", PLACED, None, _ledger(RESERVATION, WITHIN, BEYOND))
    assert (status.phase, status.node, status.allocatable) == ("Available", "n", {"cpu": 4000, "memory": 100})
    assert (status.allocated, status.taken) == ({"cpu": 6000}, {"cpu": 4000})
    assert [owner.uid for owner in status.owners] == ["a", "b"]
    assert [(each.type, each.status, each.last_transition_time) for each in status.conditions] == [
        ("Scheduled", "True", PLACED_AT),
        ("Ready", "True", PLACED_AT),
    ]


def test_amounts_count_once_with_the_pod_that_took_them() -> None:
    entries = {entry.uid: entry for entry in (RESERVATION, WITHIN, BEYOND)}
    assert taken_from_reservations(entries) == {"cpu": 4000}
    assert unused_amounts(entries) == {"r": {"cpu": 0, "memory": 100}}
    assert taken_from_reservations({"b": WITHIN, "a": BEYOND}) == {}, "nothing is given by a Reservation that is gone"


def test_a_reservation_gives_no_more_than_it_holds() -> None:
    small = _entry("r", {"cpu": 500}, ReservationUse(name="resv", uid="r"))
    assert taken_from_reservations({"r": small, "b": WITHIN}) == {"cpu": 500}


def test_a_waiting_reservation_says_why() -> None:
    waits = ReservationState(
        seq=1, name="resv", message="0/3 nodes", unschedulable_since="2026-01-01T00:00:01Z", unschedulable_at=PLACED_AT
    )
    status = reservation_status("r", None, waits, None)
    assert status.phase == "Pending"
    assert [(each.reason, each.message, each.last_probe_time) for each in status.conditions] == [
        ("Unschedulable", "0/3 nodes", PLACED_AT)
    ]


def test_the_end_keeps_or_moves_the_transition_of_ready() -> None:
    later = "2026-01-02T00:00:00.000000Z"
    taken_once = ReservationState(
        seq=3, name="resv", phase="Succeeded", reason="Succeeded", node="n", available_since=PLACED_AT, ended_at=later
    )
    ready = reservation_status("r", None, taken_once, _ledger(WITHIN)).conditions[-1]
    assert (ready.status, ready.last_probe_time, ready.last_transition_time) == ("False", later, PLACED_AT)
    expired = ReservationState(seq=3, name="resv", phase="Failed", reason="Expired", ended_at=later)
    status = reservation_status("r", None, expired, None)
    assert [(each.reason, each.last_transition_time) for each in status.conditions] == [("Expired", later)]


def test_the_ledger_of_a_node_counts_pods_and_unused_rests() -> None:
    state = ClusterState()
    for event in history([Action("add-pod", 0, 1), Action("reserve", 0, 1), Action("take", 0, 1)]):
        state.apply(event)
    ledger = state.of_kind(NodeLedger)[name_token("node-b.example")]
    assert set(ledger.pods) == {"uid-0", "r-0"}
    assert ledger.requested["cpu"] == 200 + 2000 - 401
