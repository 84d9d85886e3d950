"""Capacity questions on a cluster with Reservations, and about Reservations."""

from koordcore.requests.fit import FitRequest, PodSet
from koordcore.values.timestamps import unix_seconds
from support.scheduler.questions import asked, nodes_of
from support.scheduler.reservations import CREATED, ReservingScheduler, reservation, reserve
from support.scheduler.scheduling import SmallLog, node, pod, with_metadata

T0 = unix_seconds(CREATED)
OWNER = with_metadata(pod("web", {"cpu": "2"}), labels={"app": "web"})


def reserved() -> SmallLog:
    """Two nodes of four cores; three cores of one of them are reserved."""
    log = SmallLog()
    for name in "ab":
        log.add_node(node(name, cpu="4"))
    reserve(log, reservation(requests={"cpu": "3", "memory": "2Gi"}, allocateOnce=False))
    ReservingScheduler(log).live(T0)
    return log


def test_owner_lands_in_its_reservation_and_other_pods_do_not() -> None:
    log = reserved()
    owner = asked(log, FitRequest(pods=[PodSet(pod=OWNER, replicas=3)]), T0)
    other = asked(log, FitRequest(pods=[PodSet(pod=pod("other", {"cpu": "2"}), replicas=3)]), T0)
    assert (owner.sets[0].placed, other.sets[0].placed) == (3, 2)
    used = [each.reservation.name for each in owner.allocations.values() if each.reservation is not None]
    assert set(used) == {"r"}


def test_reservation_is_asked_for_like_a_pod() -> None:
    wanted = reservation("new", {"cpu": "3"})
    answer = asked(reserved(), FitRequest(objects=[wanted]), T0)
    [found] = answer.sets
    assert (found.name, found.placed, found.asked) == ("new", 1, 1)
    assert len(answer.nodes) == 1
    too_much = asked(reserved(), FitRequest(objects=[reservation("new", {"cpu": "5"})]), T0)
    shortage = too_much.sets[0].shortage
    assert shortage is not None
    assert (shortage.resource, shortage.short_by) == ("cpu", 1000)


def test_pod_lands_in_a_reservation_of_the_same_question() -> None:
    owners = [{"labelSelector": {"matchLabels": {"app": "x"}}}]
    wanted = reservation("new", {"cpu": "4"}, allocateOnce=False, owners=owners)
    pods = PodSet(pod=with_metadata(pod("x", {"cpu": "2"}), labels={"app": "x"}), replicas=2)
    answer = asked(reserved(), FitRequest(pods=[pods], objects=[wanted]), T0)
    assert answer.fits
    assert len(set(nodes_of(answer).values())) == 1
