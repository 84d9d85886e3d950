"""A Reservation as people see it: who may use it, what is unused, when it ends, and why it has no node."""

from typing import Any

import pytest
from koordcore.protocol.reservation_status import (
    ReservationOwner,
    ReservationStatus,
    bound,
    expired,
    owned,
    unschedulable,
)
from koordcore.protocol.reservations import reservation_from_json
from koordcore.stories.reservations import ends_at, owner_text, reservation_view

NOW = "2026-11-23T10:00:00.000000Z"


def document(**spec: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": "4", "memory": "1Gi"}}}
    return {
        "metadata": {"name": "web", "uid": "r", "creationTimestamp": NOW},
        "spec": {
            "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}],
            "template": {"spec": {"containers": [container]}},
            **spec,
        },
    }


def test_a_pending_reservation_shows_what_it_asks_for_and_why_it_has_no_node() -> None:
    shown = reservation_view(document(), unschedulable(ReservationStatus(), "0/3 nodes are available", NOW))

    assert (shown.phase, shown.reserved, shown.unused) == ("Pending", {"cpu": 4000, "memory": 1 << 30}, {})
    assert shown.message == "0/3 nodes are available"
    assert shown.for_pods == ["app=web"]


def test_what_no_owner_takes_of_an_available_reservation_is_unused() -> None:
    status = bound(ReservationStatus(), "node-1", {"cpu": 4000}, NOW)
    status = owned(status, [ReservationOwner("default", "web-0", "p")], {"cpu": 5000}, {"cpu": 1500})

    shown = reservation_view(document(), status)

    assert (shown.node, shown.taken, shown.unused) == ("node-1", {"cpu": 1500}, {"cpu": 2500})
    assert (shown.allocated, shown.expires_at) == ({"cpu": 5000}, "2026-11-24T10:00:00.000000Z")


def test_an_expired_reservation_has_neither_an_end_nor_unused_amounts() -> None:
    status = expired(bound(ReservationStatus(), "node-1", {"cpu": 4000}, NOW), NOW, "its ttl is over")

    shown = reservation_view(document(), status)

    assert (shown.phase, shown.unused, shown.expires_at, shown.message) == ("Failed", {}, "", "its ttl is over")


def test_an_object_that_cannot_be_read_is_shown_with_its_problem() -> None:
    shown = reservation_view(document(template={"spec": {"containers": "x"}}), ReservationStatus())

    assert (shown.name, shown.uid) == ("web", "r")
    assert "containers" in shown.problem


@pytest.mark.parametrize(
    ("spec", "end"),
    [
        ({}, "2026-11-24T10:00:00.000000Z"),
        ({"ttl": "30m"}, "2026-11-23T10:30:00.000000Z"),
        ({"ttl": "0s"}, ""),
        ({"ttl": "0s", "expires": "2026-11-23T11:00:00Z"}, ""),
        ({"expires": "2026-11-23T11:00:00Z"}, "2026-11-23T11:00:00.000000Z"),
        ({"expires": "2026-12-23T11:00:00Z"}, "2026-11-24T10:00:00.000000Z"),
        ({"ttl": "1 day"}, ""),
    ],
)
def test_the_earlier_of_ttl_and_expires_ends_it(spec: dict[str, Any], end: str) -> None:
    assert ends_at(reservation_from_json(document(**spec))) == end


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"object": {"namespace": "shop", "name": "web-0"}}, "pod shop/web-0"),
        ({"object": {"uid": "u"}}, "pod uid u"),
        ({"controller": {"kind": "ReplicaSet", "namespace": "shop", "name": "web"}}, "ReplicaSet shop/web"),
        ({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}}, "a In (b)"),
        ({"object": {"name": "w"}, "labelSelector": {"matchLabels": {"a": "b"}}}, "pod w and a=b"),
        ({}, "every pod"),
    ],
)  # fmt: skip
def test_an_owner_rule_is_one_text(rule: dict[str, Any], said: str) -> None:
    assert owner_text(reservation_from_json(document(owners=[rule])).spec.owners[0]) == said
