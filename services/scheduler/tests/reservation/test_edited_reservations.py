"""A change of a Reservation that comes too late is told, instead of having no effect in silence."""

from typing import Any

import pytest
from koordcore.protocol import keys
from support.scheduler.reservations import ReservingScheduler, reservation, reserve
from support.scheduler.scheduling import SmallLog, node

RESIZE = '{"resources": {"cpu": "1"}}'
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "its amounts": ({"requests": {"cpu": "3"}}, "spec.template"),
    "the resize annotation": (
        {"annotations": {keys.RESERVATION_RESIZE_ALLOCATABLE: RESIZE}},
        f"metadata.annotations[{keys.RESERVATION_RESIZE_ALLOCATABLE}]",
    ),
}
SENTENCE = "the change has no effect, because the Reservation has a node; delete it and create another"


def warnings_of(has_node: bool, **change: Any) -> list[str]:
    scheduler = ReservingScheduler(SmallLog())
    reserve(scheduler.log, reservation(requests={"cpu": "2"}))
    if has_node:
        scheduler.log.add_node(node("a"))
    scheduler.live()
    requests = change.pop("requests", {"cpu": "2"})
    reserve(scheduler.log, reservation(requests=requests, **change))
    scheduler.live()
    return list(scheduler.state.cluster.warnings)


@pytest.mark.parametrize("what", CHANGES)
def test_change_of_a_placed_reservation_that_has_no_effect_is_told(what: str) -> None:
    change, path = CHANGES[what]
    assert warnings_of(True, **dict(change)) == [f"Reservation r: {path}: {SENTENCE}"]
    assert warnings_of(False, **dict(change)) == []


def test_change_of_a_placed_reservation_that_has_effect_is_not() -> None:
    assert warnings_of(True, ttl="48h", owners=[]) == []
