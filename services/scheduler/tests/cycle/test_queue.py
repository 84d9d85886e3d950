"""Order, backoff, waiting and waking of the queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_scheduler.domain.cluster.equivalence_classes import PodClasses, Subject
from koord_scheduler.domain.columns.node_columns import NodeColumns, Rows
from koord_scheduler.domain.columns.node_shape import node_shape
from koord_scheduler.domain.loop.queue.queued_pod import QueueState
from koord_scheduler.domain.loop.queue.scheduling_queue import SchedulingQueue
from koord_scheduler.domain.loop.queue.unschedulable import Group, Rank
from koordcore.protocol.objects import Pod
from support.scheduler.scheduling import node, pod


@pytest.fixture
def nodes() -> NodeColumns:
    columns = NodeColumns()
    columns.put("n", node_shape(node("n")))
    return columns


@pytest.fixture
def pod_classes(nodes: NodeColumns) -> PodClasses:
    return PodClasses(nodes)


@pytest.fixture
def queue(nodes: NodeColumns) -> SchedulingQueue:
    return SchedulingQueue(nodes)


def always(subject: Subject, rows: Rows) -> bool:
    return True


def subject_of(pod_classes: PodClasses, wanted: Pod) -> Subject:
    return pod_classes.read(wanted).subject


def popped(queue: SchedulingQueue) -> list[str]:
    order: list[str] = []
    while (queued := queue.pop()) is not None:
        order.append(queued.uid)
    return order


def rows_of(nodes: NodeColumns) -> Rows:
    import numpy as np

    return np.arange(len(nodes), dtype=np.intp)


def test_higher_priority_first_then_first_come(queue: SchedulingQueue, pod_classes: PodClasses) -> None:
    pod_class = subject_of(pod_classes, pod())
    for uid, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 5)):
        queue.add(uid, pod_class, priority, "t")
    assert popped(queue) == ["b", "d", "a", "c"]


def test_backoff_doubles_from_one_second_to_ten(queue: SchedulingQueue, pod_classes: PodClasses) -> None:
    queue.add("a", subject_of(pod_classes, pod()), 0, "t")
    waits: list[float] = []
    now = 0.0
    for _ in range(6):
        assert queue.pop() is not None
        ready = queue.retry_later("a", now)
        waits.append(ready - now)
        queue.tick(ready - 0.001)
        assert queue.pop() is None
        now = ready
        queue.tick(now)
    assert waits == [1, 2, 4, 8, 10, 10]


def test_event_wakes_one_pod_of_each_kind_and_success_wakes_the_next(
    queue: SchedulingQueue, nodes: NodeColumns, pod_classes: PodClasses
) -> None:
    small, large = (
        subject_of(pod_classes, pod(requests={"cpu": "1"})),
        subject_of(pod_classes, pod(requests={"cpu": "2"})),
    )
    for number in range(2000):
        queue.add(f"s{number}", small, 0, "t")
    queue.add("l0", large, 0, "t")
    for uid in popped(queue):
        queue.unschedulable(uid, 0.0)
    queue.tick(5.0)
    assert queue.wake(rows_of(nodes), always, "event") == 2
    assert queue.counts()[QueueState.ACTIVE] == 2
    assert popped(queue) == ["s0", "l0"]
    first = queue.get("s0")
    assert first is not None
    queue.assumed(first, lambda pod_class: True)
    woken = queue.pop()
    assert woken is not None
    assert (woken.uid, woken.trigger) == ("s1", "event")


def test_event_that_cannot_help_wakes_nobody(
    queue: SchedulingQueue, nodes: NodeColumns, pod_classes: PodClasses
) -> None:
    asked: list[Subject] = []

    def fits(subject: Subject, rows: Rows) -> bool:
        asked.append(pod_class)
        return False

    big, picky = (
        subject_of(pod_classes, pod(requests={"cpu": "64"})),
        subject_of(pod_classes, pod(nodeSelector={"zone": "a"})),
    )
    for uid, pod_class in (("big", big), ("picky", picky)):
        queue.add(uid, pod_class, 0, "t")
        queue.pop()
        queue.unschedulable(uid, 0.0)
    queue.tick(100.0)
    assert queue.wake(rows_of(nodes), fits, "event") == 0
    assert asked == [picky]  # the free amounts alone rule the big one out


def test_woken_pod_first_ends_its_backoff(queue: SchedulingQueue, nodes: NodeColumns, pod_classes: PodClasses) -> None:
    queue.add("a", subject_of(pod_classes, pod()), 0, "t")
    queue.pop()
    queue.tick(10.0)
    queue.unschedulable("a", 10.0)
    queue.wake(rows_of(nodes), always, "event")
    assert queue.pop() is None
    assert queue.next_due() == 11.0
    queue.tick(11.0)
    assert queue.pop() is not None


def test_removing_a_woken_pod_wakes_the_next_of_its_kind(
    queue: SchedulingQueue, nodes: NodeColumns, pod_classes: PodClasses
) -> None:
    pod_class = subject_of(pod_classes, pod())
    for uid in ("a", "b"):
        queue.add(uid, pod_class, 0, "t")
    for uid in popped(queue):
        queue.unschedulable(uid, 0.0)
    queue.tick(5.0)
    queue.wake(rows_of(nodes), always, "event")
    queue.remove("a")
    assert popped(queue) == ["b"]


def test_pod_that_is_woken_for_no_event_keeps_the_cause_of_its_decision(
    queue: SchedulingQueue, pod_classes: PodClasses
) -> None:
    queue.add("a", subject_of(pod_classes, pod()), 0, "t")
    queue.pop()
    queue.unschedulable("a", 0.0)
    queue.tick(5.0)
    queue.wake_pod("a", "")
    woken = queue.pop()
    assert woken is not None
    assert woken.trigger == "t"


def test_what_a_group_keeps_does_not_grow_with_the_attempts_of_its_pods() -> None:
    group = Group()
    group.add((0, 0, "first"))
    for ticket in range(1, 1000):
        group.add((0, ticket, "again"))
        group.add((0, ticket, f"once-{ticket}"))
        assert group.first() == "first"
        group.discard("again")
        group.discard(f"once-{ticket}")
    assert len(group.heap) < 50
    group.add((0, 1000, "again"))
    group.discard("first")
    assert group.first() == "again"


def test_pod_that_returns_with_another_priority_has_another_place() -> None:
    group = Group()
    for rank in ((-1, 1, "a"), (-1, 2, "b")):
        group.add(rank)
    group.discard("a")
    group.add((0, 3, "a"))
    assert group.first() == "b"
    group.discard("b")
    assert group.first() == "a"


def test_nobody_waits_longer_than_five_minutes(queue: SchedulingQueue, pod_classes: PodClasses) -> None:
    queue.add("a", subject_of(pod_classes, pod()), 0, "t")
    queue.tick(0.0)
    queue.pop()
    queue.unschedulable("a", 0.0)
    now = 0.0
    while queue.pop() is None:
        due = queue.next_due()
        assert due is not None
        assert due > now
        now = due
        queue.tick(now)
    assert 300.0 <= now <= 330.0


def test_pod_behind_many_equal_pods_waits_no_longer_than_others(
    queue: SchedulingQueue, pod_classes: PodClasses
) -> None:
    many, other = (subject_of(pod_classes, pod(requests={"cpu": cpu})) for cpu in ("1", "2"))
    for number in range(1200):
        queue.add(f"many{number}", many, 0, "t")
    queue.add("other", other, 0, "t")
    queue.tick(0.0)
    for uid in popped(queue):
        queue.unschedulable(uid, 0.0)
    queue.tick(300.0)
    assert popped(queue) == ["many0", "other"]


def test_gated_pod_is_not_attempted_until_its_gate_is_gone(nodes: NodeColumns, pod_classes: PodClasses) -> None:
    closed = {"a": "not yet"}
    queue = SchedulingQueue(nodes, gate=closed.get)
    queue.add("a", subject_of(pod_classes, pod()), 0, "t")
    queue.tick(1000.0)
    assert queue.pop() is None
    assert queue.counts()[QueueState.GATED] == 1
    assert queue.gated == {"a": "not yet"}
    queue.recheck("a")
    assert queue.pop() is None
    closed.clear()
    queue.recheck("a")
    assert popped(queue) == ["a"]


def test_counts_follow_every_move(queue: SchedulingQueue, pod_classes: PodClasses) -> None:
    for uid in "abc":
        queue.add(uid, subject_of(pod_classes, pod()), 0, "t")
    queue.pop()
    queue.pop()
    queue.unschedulable("a", 0.0)
    queue.retry_later("b", 0.0)
    counts = queue.counts()
    assert [
        counts[place]
        for place in (QueueState.ACTIVE, QueueState.UNSCHEDULABLE, QueueState.BACKOFF, QueueState.IN_FLIGHT)
    ] == [
        1,
        1,
        1,
        0,
    ]
    for uid in "abc":
        queue.remove(uid)
    assert not any(queue.counts().values())
    assert queue.next_due() is None


MOVES = st.lists(
    st.tuples(st.sampled_from(["add", "pop", "fail", "retry now"]), st.integers(0, 3), st.integers(0, 11)),
    max_size=120,
)


@given(MOVES)
def test_of_two_attempts_one_is_a_first_one_while_a_pod_waits_for_it(moves: list[tuple[str, int, int]]) -> None:
    """Whatever the priorities: a pod waits for its first attempt at most for the pods before it, and as many retries.

    Among untried pods, and among retries, the order is that of priority and enqueueing.
    """
    columns = NodeColumns()
    queue, pod_class = SchedulingQueue(columns), subject_of(PodClasses(columns), pod())
    untried: dict[str, Rank] = {}
    retries: dict[str, Rank] = {}
    in_flight: list[str] = []
    last_was_retry = False
    for number, (move, priority, choice) in enumerate(moves):
        if move == "add":
            queue.add(uid := f"p{number}", pod_class, priority, "t")
            untried[uid] = rank_of(queue, uid)
        elif move == "pop" and (queued := queue.pop()) is not None:
            is_retry = queued.uid in retries
            mine, others = (retries, untried) if is_retry else (untried, retries)
            rank = mine.pop(queued.uid)
            assert all(rank < other for other in mine.values())
            if is_retry and others:
                assert not last_was_retry
                assert all(rank < other for other in others.values())
            elif others and not last_was_retry:
                assert all(rank < other for other in others.values())
            last_was_retry = is_retry and bool(others)
            in_flight.append(queued.uid)
        elif in_flight and move == "fail":
            queue.retry_later(uid := in_flight.pop(choice % len(in_flight)), float(number))
            queue.tick(number + 20.0)
            retries[uid] = rank_of(queue, uid)
        elif in_flight and move == "retry now":
            queue.retry_now(uid := in_flight.pop(choice % len(in_flight)))
            retries[uid] = rank_of(queue, uid)
    assert len(popped(queue)) == len(untried) + len(retries)


def rank_of(queue: SchedulingQueue, uid: str) -> Rank:
    queued = queue.get(uid)
    assert queued is not None
    assert queued.state is QueueState.ACTIVE
    return queued.rank


def test_many_retries_of_a_higher_priority_do_not_keep_a_pod_from_its_first_attempt(
    queue: SchedulingQueue, pod_classes: PodClasses
) -> None:
    """As in a run at speed 360: the back-off of a failed pod is over before the next decision."""
    pod_class = subject_of(pod_classes, pod())
    for number in range(50):
        queue.add(f"unschedulable-{number}", pod_class, 9, "t")
    for _ in range(50):
        queued = queue.pop()
        assert queued is not None
        queue.retry_later(queued.uid, 0.0)
    now = 10.0
    queue.tick(now)
    for number in range(20):
        queue.add(f"new-{number}", pod_class, 0, "t")
    first: list[str] = []
    for _ in range(40):
        queued = queue.pop()
        assert queued is not None
        if queued.attempts == 1:
            first.append(queued.uid)
        else:
            queue.retry_later(queued.uid, now)
        now += 10
        queue.tick(now)
    assert first == [f"new-{number}" for number in range(20)]
