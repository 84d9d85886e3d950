"""The tables of Reservations: amounts in use, remaining time, owners."""

from typing import Any

from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol.reservation_status import ReservationOwner
from koordcore.state.aggregates import CustomObjectState
from koordcore.state.cluster import ClusterState
from koordcore.stories.reservations import ReservationView
from koordctl.objects.reservations import held_rows, reservation_rows, reservations_in
from support.histories.recording import Recorder

OWNERS = [ReservationOwner("shop", f"web-{number}", str(number)) for number in range(5)]
VIEW = ReservationView(
    name="web",
    uid="r",
    phase="Available",
    node="node-1",
    created_at="2026-11-23T10:00:00.000000Z",
    expires_at="2026-11-23T10:30:00.000000Z",
    for_pods=["app=web"],
    reserved={"cpu": 4000, "memory": 1 << 30},
    taken={"cpu": 1500},
    owners=OWNERS,
)


def test_a_row_shows_age_remaining_time_amounts_and_the_first_owners() -> None:
    (row,) = reservation_rows([VIEW], "2026-11-23T10:10:00.000000Z")

    assert row == (
        "web", "Available", "node-1", "10 min", "20 min", "cpu 1.5/4, memory 0.0Gi/1.0Gi",
        "shop/web-0, shop/web-1, shop/web-2 and 2 more", "app=web",
    )  # fmt: skip


def test_a_replayed_state_shows_its_reservations() -> None:
    log = Recorder()
    container = {"name": "main", "resources": {"requests": {"cpu": "2"}}}
    document: dict[str, Any] = {
        "metadata": {"name": "web", "uid": "r"},
        "spec": {"owners": [{}], "template": {"spec": {"containers": [container]}}},
    }
    ref = custom_ref("reservations", "", "web")
    log.write(ref.kind, ref.id, CustomObjectObserved(object=document))

    assert isinstance(log.state, ClusterState)
    assert log.state.of_kind(CustomObjectState)
    assert held_rows(reservations_in(log.state)) == [("web", "Pending", None, "cpu 0/2", None)]
