"""Pods in operating mode Reservation: a running pod whose resources one other pod may use."""

import json
from typing import Any

import msgspec
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.snapshot import Picture, load_state
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod, PodCondition, PodStatus
from koordcore.state.aggregates import NodeLedger, PodState
from koordcore.state.allocation_rules import broken_rules
from koordcore.values.timestamps import unix_seconds
from support.scheduler.reservations import CREATED, ReservingScheduler, fold_of, sums
from support.scheduler.scheduling import SmallLog, frameworks, node, pod, with_metadata

T0 = unix_seconds(CREATED)
MODE = "Reservation"
OWNERS = [{"labelSelector": {"matchLabels": {"app": "web"}}}]


def holder(*, ready: bool = True, owners: Any = OWNERS, owner: str = "") -> Pod:
    """A running pod with 3 CPUs on node `n` in operating mode Reservation."""
    texts = {
        keys.RESERVATION_OWNERS: owners if isinstance(owners, str) else json.dumps(owners),
        **({keys.RESERVATION_CURRENT_OWNER: owner} if owner else {}),
    }
    found = with_metadata(
        pod("holder", {"cpu": "3"}, node_name="n"), labels={keys.OPERATING_MODE: MODE}, annotations=texts
    )
    condition = PodCondition(type="Ready", status="True" if ready else "False")
    return msgspec.structs.replace(found, status=PodStatus(phase="Running", conditions=[condition]))


def web(uid: str, cpu: str = "2") -> Pod:
    return with_metadata(pod(uid, {"cpu": cpu}), labels={"app": "web"})


def world(placeholder: Pod) -> tuple[SmallLog, ReservingScheduler]:
    """A node of 4 CPUs on which the pod was placed by the log, and then runs."""
    log = SmallLog()
    log.add_node(node("n", cpu="4"))
    scheduler = ReservingScheduler(log)
    log.add_pod(msgspec.structs.replace(placeholder, spec=pod("holder", {"cpu": "3"}).spec, status=PodStatus()))
    scheduler.live(T0)
    log.add_pod(placeholder)
    scheduler.live(T0)
    return log, scheduler


def placed(log: SmallLog) -> set[str]:
    return {uid for uid, state in fold_of(log).of_kind(PodState).items() if state.node}


def test_one_owner_uses_the_resources_of_a_running_pod() -> None:
    log, scheduler = world(holder())
    log.add_pod(web("first"))
    scheduler.live(T0)
    log.add_pod(web("second"))
    scheduler.live(T0)
    assert placed(log) == {"holder", "first"}, "a second pod cannot use it, and the node has only 1 CPU left"
    ledger = fold_of(log).of_kind(NodeLedger)["n"]
    used = ledger.pods["first"].allocation.reservation
    assert used is not None
    assert (used.name, used.uid, used.amounts) == ("holder", "holder", {"cpu": 2000})
    assert ledger.requested == {"cpu": 3000}
    assert broken_rules(fold_of(log)) == {}
    row, nodes = scheduler.state.nodes.row("n"), scheduler.state.nodes
    assert row is not None
    assert nodes.requested[nodes.column("cpu"), row] == 3000


def test_a_waiting_owner_is_tried_again_when_the_pod_becomes_ready() -> None:
    log, scheduler = world(holder(ready=False))
    log.add_pod(web("first"))
    scheduler.live(T0)
    assert placed(log) == {"holder"}
    log.add_pod(holder())
    scheduler.live(T0)
    scheduler.live(T0 + 60)
    assert placed(log) == {"holder", "first"}


def test_if_the_pod_leaves_its_owner_keeps_its_resources() -> None:
    log, scheduler = world(holder())
    log.add_pod(web("first"))
    scheduler.live(T0)
    log.remove_pod("holder")
    scheduler.live(T0)
    ledger = fold_of(log).of_kind(NodeLedger)["n"]
    assert ledger.requested == sums(ledger) == {"cpu": 2000}
    row, nodes = scheduler.state.nodes.row("n"), scheduler.state.nodes
    assert row is not None
    assert nodes.requested[nodes.column("cpu"), row] == 2000
    assert "holder" not in {entry.uid for entry in scheduler.state.books.reservations.entries.values() if entry.terms}


def test_a_pod_that_is_for_nobody_or_was_used_gives_nothing() -> None:
    used = json.dumps({"namespace": "default", "name": "gone", "uid": "gone"})
    for given in (holder(owners=[]), holder(owners="{"), holder(owner=used)):
        log, scheduler = world(given)
        log.add_pod(web("first"))
        scheduler.live(T0)
        assert placed(log) == {"holder"}


def test_a_snapshot_knows_the_pod_and_its_owner() -> None:
    log, scheduler = world(holder())
    log.add_pod(web("first"))
    scheduler.live(T0)
    restored = SchedulerState(frameworks())
    load_state(restored, b"".join(Picture(scheduler.state).pieces()))
    for state in (restored, scheduler.state):
        entry, row = state.books.reservations.entries["holder"], state.nodes.row("n")
        assert row is not None
        assert (set(entry.owners), entry.is_available(), entry.unused()) == ({"first"}, False, {"cpu": 1000})
        assert state.nodes.requested[state.nodes.column("cpu"), row] == 3000
