"""Why a pending pod did not get a Reservation: the first rule that forbids it, as the scheduler applies it."""

import json
from typing import Any

import pytest
from koordcore.protocol.reservation_status import ReservationOwner, ReservationStatus, bound, owned
from koordcore.stories.reservations import reservation_view
from koordcore.values.allocation import Allocation, ReservationUse
from koordctl.pod.story import use_line
from koordctl.reservation.claims import claim_of
from koordctl.reservation.lines import UsedAmounts, reservation_lines

NOW = "2026-11-23T10:00:00.000000Z"
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
EXACT = "scheduling.koordinator.sh/exact-match-reservation"


def rule(
    pod: dict[str, Any] | None = None,
    *,
    owner: str = "web",
    is_taken: bool = False,
    is_placed: bool = True,
    **spec: Any,
) -> str | None:
    """The rule that keeps a pod with label app=web from a Reservation; None if it is not for the pod."""
    containers = [{"name": "main", "resources": {"requests": {"cpu": "4"}}}]
    document = {
        "metadata": {"name": "r", "uid": "u", "creationTimestamp": NOW, "labels": {"pool": "a"}},
        "spec": {
            "owners": [{"labelSelector": {"matchLabels": {"app": owner}}}],
            "template": {"spec": {"containers": containers}},
            **spec,
        },
    }
    status = bound(ReservationStatus(), "n", {"cpu": 4000}, NOW) if is_placed else ReservationStatus()
    if is_taken:
        status = owned(status, [ReservationOwner("default", "other", "o")], {"cpu": 4000}, {"cpu": 4000})
    metadata = {"name": "web", "namespace": "default", "uid": "p", "labels": {"app": "web"}, **(pod or {})}
    waiting = {"metadata": metadata, "spec": {"containers": containers}}
    claim = claim_of(waiting, "", document, reservation_view(document, status), {})
    return None if claim is None else claim.rule


def affinity(**fields: Any) -> dict[str, Any]:
    return {"annotations": {AFFINITY: json.dumps(fields)}}


TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (rule(owner="db"), None),
        (rule(affinity(name="r"), owner="db"), "owners of the Reservation do not include"),
        (rule(affinity(name="q")), "names another Reservation"),
        (rule(unschedulable=True), "takes no new owners"),
        (rule(affinity(), taints=[TAINT]), "taint team=a:NoSchedule"),
        (rule(affinity(reservationSelector={"pool": "b"})), "do not match the pod's affinity"),
        (rule({"annotations": {EXACT: '{"resourceNames":["memory","cpu"]}'}}), "it matches"),
        (rule(is_placed=False), "the Reservation is Pending"),
        (rule(is_taken=True), "allocateOnce"),
        (rule(is_taken=True, allocateOnce=False), "it matches, but the pod does not fit"),
        (rule({"labels": {"app": "web", "scheduling.koordinator.sh/reservation-ignored": "true"}}), "ignores"),
    ],
)
def test_the_first_failing_rule_is_named(found: str | None, said: str | None) -> None:
    assert (found is None) == (said is None)
    assert said is None or said in (found or "")


def test_a_pod_beyond_the_border_of_its_reservation_names_both_parts() -> None:
    given = Allocation(reservation=ReservationUse(name="r", uid="u", amounts={"cpu": 4000}))

    assert (
        use_line(given, {"cpu": 5000, "memory": 1 << 30})
        == "cpu 4 from Reservation r, cpu 1, memory 1.0Gi from the node"
    )
    assert use_line(Allocation(), {"cpu": 5000}) is None


def test_the_pods_of_a_reservation_are_shown_by_name() -> None:
    document: dict[str, Any] = {
        "metadata": {"name": "r", "uid": "u", "creationTimestamp": NOW},
        "spec": {"template": {"spec": {}}},
    }
    uses = [UsedAmounts(pod=f"n/{name}", from_reservation={"cpu": 1000}, from_node={}) for name in ("b", "a")]

    lines = list(reservation_lines(reservation_view(document, ReservationStatus()), uses, ()))

    assert [line.split()[2] for line in lines if "used by" in line] == ["n/a:", "n/b:"]
