"""Random histories of Reservations with one or two schedulers: nothing is lost, counted twice or given twice."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from koord_scheduler.domain.framework.gates import SchedulerGates
from koordcore.events import CATALOGUE
from koordcore.events.objects import CustomObjectObserved, PodSpecChanged
from koordcore.events.pod import PodPlaced
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod, PodCondition, PodStatus
from koordcore.state import ClusterState
from koordcore.state.aggregates import CustomObjectState, NodeLedger, PodSpecState, PodState
from koordcore.state.allocation_rules import broken_rules
from koordcore.values.allocation import is_reservation
from koordcore.values.timestamps import unix_seconds
from support.depth import examples
from support.scheduler.reservations import CREATED, ReservingScheduler, fold_of, reservation, reserve, sums, unreserve
from support.scheduler.scheduling import SmallLog, node, pod, with_metadata

T0 = unix_seconds(CREATED)
NODES = ("n0", "n1")
CAPACITY = 4000


class Step(NamedTuple):
    """One step of a history: what, about which object, with which variation."""

    what: str
    subject: int
    variation: int


STEPS = (
    "reserve", "reserve-once", "reserve-restricted", "reserve-pre", "reserve-pre", "unreserve", "resize", "own", "own",
    "own", "plain", "leave", "operate",
    "node-goes", "node-comes", "time", "follow", "decide", "decide", "send", "land", "live",
)  # fmt: skip

histories = st.lists(
    st.builds(Step, st.sampled_from(STEPS), st.integers(0, 3), st.integers(0, 3)), min_size=4, max_size=50
)


def _pod(uid: str, variation: int, *, owner: bool) -> Pod:
    made = pod(uid, {"cpu": f"{500 * (variation + 1)}m"})
    return with_metadata(made, labels={"app": "web"}) if owner else made


def _document(step: Step, *, once: bool, resized: bool = False) -> dict[str, Any]:
    return reservation(
        f"r{step.subject}",
        {"cpu": str(step.variation + 1)},
        allocateOnce=once,
        ttl=f"{100 * (step.variation + 1)}s",
        annotations={keys.RESERVATION_RESIZE_ALLOCATABLE: '{"resources":{"cpu":"1"}}'} if resized else None,
        allocatePolicy="Restricted" if step.what in ("reserve-restricted", "reserve-pre") else "Aligned",
        preAllocation=step.what == "reserve-pre",
        preAllocationPolicy={"mode": "Default", "enableMultiple": step.variation % 2 == 0},
    )


class _World:
    """The log, the schedulers on it, and the clock."""

    def __init__(self, schedulers: int, gates: SchedulerGates | None = None) -> None:
        self.log = SmallLog()
        for name in NODES:
            self.log.add_node(node(name, cpu="4"))
        self.schedulers = [ReservingScheduler(self.log, gates=gates) for _ in range(schedulers)]
        self.now = T0
        self.pods = 0
        self.known: dict[str, bool] = {}

    def take(self, step: Step) -> None:
        """Carry out one step."""
        log, scheduler = self.log, self.schedulers[step.variation % len(self.schedulers)]
        name, where = f"r{step.subject}", NODES[step.subject % len(NODES)]
        match step.what:
            case "reserve" | "reserve-once" | "reserve-restricted" | "reserve-pre" if name not in self.known:
                self.known[name] = step.what == "reserve-once"
                reserve(log, _document(step, once=self.known[name]))
            case "resize" if name in self.known:
                reserve(log, _document(step, once=self.known[name], resized=True))
            case "unreserve" if name in self.known:
                unreserve(log, name)
            case "own" | "plain":
                self.pods += 1
                log.add_pod(_pod(f"p{self.pods}", step.variation, owner=step.what == "own"))
            case "leave" if self.pods:
                uid = f"p{1 + step.subject % self.pods}"
                if any(stored.ref.kind == "podspec" and stored.ref.id == uid for stored in log.events):
                    log.remove_pod(uid)
            case "operate" if self.pods:
                self._operate(f"p{1 + step.subject % self.pods}", ready=step.variation > 0)
            case "node-goes" if log.knows_node(where):
                log.remove_node(where)
            case "node-comes" if not log.knows_node(where):
                log.add_node(node(where, cpu="4"))
            case "time":
                self.now += 60.0
            case "follow":
                scheduler.follow(step.subject + 1)
            case "decide":
                scheduler.decide(self.now)
            case "send":
                scheduler.state.assumed.release_due()
                scheduler.send()
            case "land" if scheduler.in_flight:
                scheduler.land(step.subject % len(scheduler.in_flight), self.now)
            case "live":
                while scheduler.in_flight:
                    scheduler.land(now=self.now)
                scheduler.live(self.now)
            case _:
                pass

    def _operate(self, uid: str, *, ready: bool) -> None:
        """Let a placed pod run in operating mode Reservation. No-op if it is not placed or was deleted."""
        state = fold_of(self.log)
        placed, spec = state.of_kind(PodState).get(uid), state.of_kind(PodSpecState).get(uid)
        if placed is None or not placed.node or spec is None:
            return
        owners = json.dumps([{"labelSelector": {"matchLabels": {"app": "web"}}}])
        labels, texts = {keys.OPERATING_MODE: "Reservation"}, {keys.RESERVATION_OWNERS: owners}
        condition = PodCondition(type="Ready", status="True" if ready else "False")
        running = msgspec.structs.replace(
            with_metadata(spec.object, labels=labels, annotations=texts),
            status=PodStatus(phase="Running", conditions=[condition]),
        )
        self.log.say("podspec", uid, PodSpecChanged(object=running))

    def rest(self) -> None:
        """Let every scheduler do all that there is to do."""
        for _ in range(3):
            for scheduler in self.schedulers:
                while scheduler.in_flight:
                    scheduler.land(now=self.now)
                scheduler.live(self.now)
        for scheduler in self.schedulers:
            scheduler.follow()


def _check_log(log: SmallLog) -> None:
    """At every position: a ledger is the sum of its pods and of the unused rests, and nothing is given twice."""
    state, once, owners = ClusterState(), set[str](), Counter[str]()
    for stored in log.events:
        event = state.apply(stored)
        for ledger in state.of_kind(NodeLedger).values() if stored.ref.kind == "node" else ():
            assert ledger.requested == sums(ledger), f"at {stored.seq}"
            assert ledger.requested.get("cpu", 0) <= CAPACITY, f"at {stored.seq}"
        if stored.ref.kind == "node":
            assert broken_rules(state) == {}, f"at {stored.seq}"
        if isinstance(event, PodPlaced):
            used = event.allocation.reservation
            if used is not None and not is_reservation(stored.ref.id, event.allocation):
                owners[used.uid] += 1
    for stored in log.events:
        event = CATALOGUE.read(stored)
        if isinstance(event, CustomObjectObserved) and event.object["spec"]["allocateOnce"]:
            once.add(event.object["metadata"]["uid"])
    assert not [uid for uid in once if owners[uid] > 1], "a Reservation that may be taken once was taken twice"


def _check_columns(scheduler: ReservingScheduler) -> None:
    """The columns of a scheduler at rest are its ledgers."""
    state, fold = scheduler.state, ClusterState()
    for stored in scheduler.log.events:
        fold.apply(stored)
    cpu = state.nodes.column("cpu")
    for token, ledger in fold.of_kind(NodeLedger).items():
        row = state.nodes.row(token)
        if row is not None:
            assert state.nodes.requested[cpu, row] == ledger.requested.get("cpu", 0)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_a_ledger_is_the_sum_of_pods_and_unused_rests_at_every_position(steps: Sequence[Step]) -> None:
    world = _World(1)
    for step in steps:
        world.take(step)
    world.rest()
    _check_log(world.log)
    _check_columns(world.schedulers[0])


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_no_pod_uses_a_deleted_reservation_with_the_gate(steps: Sequence[Step]) -> None:
    world = _World(1, SchedulerGates(clean_expired_reservation_allocated=True))
    for step in steps:
        world.take(step)
    world.rest()
    _check_log(world.log)
    _check_columns(world.schedulers[0])
    state = fold_of(world.log)
    known = {str(each.object["metadata"]["uid"]) for each in state.of_kind(CustomObjectState).values() if each.object}
    used = {
        used.uid
        for ledger in state.of_kind(NodeLedger).values()
        for entry in ledger.pods.values()
        if (used := entry.allocation.reservation) and used.uid.startswith("uid-")  # others are pods that act as such
    }
    assert used <= known


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_two_schedulers_never_give_a_reservation_twice(steps: Sequence[Step]) -> None:
    world = _World(2)
    for step in steps:
        world.take(step)
    world.rest()
    _check_log(world.log)
    for scheduler in world.schedulers:
        _check_columns(scheduler)
