"""What a node writes on its own aggregates stops no fold, and every fold passes over the same messages."""

import random
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from koord_descheduler.domain.view.building import ViewBuilder
from koord_manager.domain.cluster.view import ManagerView
from koord_projector.fold.projection import Projection
from koord_scheduler.domain.loop.folding.log import fold
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.replay.state_hash import state_hash
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, StoredEvent
from koordcore.events.nodestate import (
    DeviceInventoryChanged,
    NodeTopologyReported,
    PodsStarted,
    ReportedDevice,
    TopologyZone,
)
from koordcore.events.objects import NodeSpecDeleted
from koordcore.events.registry import UnreadableEvent
from koordcore.state import ClusterState
from koordcore.values import codec
from koordcore.values.resources import MAX_AMOUNT
from support.depth import seeds
from support.histories.history import every_kind_once, history
from support.histories.recording import stored
from support.hostile_node import hostile
from support.scheduler.scheduling import frameworks


class States(NamedTuple):
    """The states of all folds after a log, as texts that can be compared."""

    cluster: dict[str, bytes]
    projector: dict[str, bytes]
    manager: str
    descheduler: str
    scheduler: str


def folded(log: Iterable[StoredEvent]) -> States:
    cluster, manager, descheduler = ClusterState(), ManagerView(), ViewBuilder()
    scheduler, projection = SchedulerState(frameworks()), Projection()
    for message in log:
        for apply in (cluster.apply, manager.fold, descheduler.apply, projection.apply):
            apply(message)
        fold(scheduler, message)
    rows = projection.take_changes()
    assert manager.state.hash() == descheduler.state.hash() == cluster.hash()
    return States(
        {str(ref): codec.encode_canonical(state) for ref, state in cluster},
        {str(row.ref): row.state for row in (*rows.new_aggregates, *rows.changed_aggregates)},
        manager.state.hash(),
        descheduler.state.hash(),
        state_hash(scheduler),
    )


def interspersed(seed: int, count: int = 400) -> list[StoredEvent]:
    """A valid history, and between its facts messages of hostile nodes."""
    rng = random.Random(seed)
    facts = history(every_kind_once())
    log: list[StoredEvent] = []
    for number, fact in enumerate(facts):
        for _ in range(rng.randrange(2 * count // len(facts) + 1)):
            log.append(hostile(rng, facts[: number + 1] if number > len(facts) // 2 else facts, len(log) + 1))
        log.append(StoredEvent(len(log) + 1, fact.ref, fact.headers, fact.body, fact.stored_at_ns))
    return log


@pytest.mark.parametrize("seed", seeds(20))
def test_no_message_of_a_node_stops_a_fold_and_all_folds_pass_over_the_same_ones(seed: int) -> None:
    log = interspersed(seed)
    passed_over = {message.seq for message in log if CATALOGUE.why_passed_over(message)}
    assert 50 < len(passed_over) < len(log)

    states = folded(log)

    assert states.projector == states.cluster
    assert states == folded([message for message in log if message.seq not in passed_over])


def started(**headers: str) -> StoredEvent:
    """A fact of node n1, with other headers."""
    fact = stored(7, Draft(AggregateRef("nodestate", "n1"), PodsStarted(pods=["p"]), 0))
    return StoredEvent(
        7, fact.ref, {**fact.headers, **{name.replace("_", "-"): headers[name] for name in headers}}, fact.body
    )


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (started(Koord_Type="NodeSpecDeleted"), "belongs to 'nodespec', found on 'nodestate'"),
        (started(Koord_Type="Nonsense"), "no such event type"),
        (started(Koord_Type=""), "it has no envelope: the header Koord-Type is missing"),
        (started(Koord_Schema="9"), "schema 9 is newer than 1"),
        (started(Koord_Occurred_At="2026-02-30T00:00:00Z"), "Koord-Occurred-At: must be an RFC 3339 time in UTC"),
        (started(Koord_Occurred_At=""), "Koord-Occurred-At: must be an RFC 3339 time in UTC"),
        (started(Koord_Actor="x" * 2000), "Koord-Actor: must be at most 1024 printable characters"),
        (started(Nats_Msg_Id=""), "Nats-Msg-Id: must be the id of the event"),
        (started(Nats_Subject="koord.c.ev.pod.p"), "it is an answer of the server"),
        (StoredEvent(7, AggregateRef("criproxy", "n1"), {}, b'{"stream":"KOORD_EV_c","seq":7}'), "it has no envelope"),
    ],
)
def test_a_message_of_a_node_is_passed_over_with_a_reason(message: StoredEvent, reason: str) -> None:
    assert CATALOGUE.read(message) is None
    assert reason in CATALOGUE.why_passed_over(message)


@pytest.mark.parametrize("body", [b'{"pods":["a\\u0000b"]}', b'{"pods":[1]}', b"\xff", b"", b"[" * 100_000])
def test_a_body_that_not_everybody_can_store_is_passed_over(body: bytes) -> None:
    fact = started()
    assert CATALOGUE.why_passed_over(StoredEvent(7, fact.ref, fact.headers, body))


@pytest.mark.parametrize("amount", [-1, MAX_AMOUNT + 1, -(1 << 63), (1 << 63) - 1, 1 << 64])
def test_amounts_that_no_device_and_no_zone_can_have_are_passed_over(amount: int) -> None:
    def about(event: Event) -> StoredEvent:
        return stored(7, Draft(AggregateRef("nodestate", "n1"), event, 0))

    def gpu(memory: int) -> StoredEvent:
        amounts = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory": memory}
        return about(DeviceInventoryChanged(devices=[ReportedDevice(type="gpu", minor=0, amounts=amounts)]))

    def zone(**amounts: dict[str, int]) -> StoredEvent:
        return about(NodeTopologyReported(policies=[], zones=[TopologyZone(name="node-0", **amounts)]))

    assert CATALOGUE.read(gpu(MAX_AMOUNT)) is not None
    assert CATALOGUE.read(zone(capacity={"cpu": 0}, allocatable={"cpu": MAX_AMOUNT})) is not None
    for refused in (gpu(amount), zone(capacity={"cpu": amount}), zone(allocatable={"memory": amount})):
        assert CATALOGUE.read(refused) is None
        assert "body: " in CATALOGUE.why_passed_over(refused)


def test_a_fact_of_the_control_plane_that_cannot_be_read_still_halts_folds() -> None:
    fact = stored(7, Draft(AggregateRef("nodespec", "n1"), NodeSpecDeleted(name="n1"), 0))
    with pytest.raises(UnreadableEvent):
        ClusterState().apply(StoredEvent(7, fact.ref, fact.headers, b"{"))


def test_an_answer_of_the_server_is_no_fact_on_any_aggregate() -> None:
    fact = stored(7, Draft(AggregateRef("nodespec", "n1"), NodeSpecDeleted(name="n1"), 0))
    copied = StoredEvent(7, fact.ref, {**fact.headers, "Nats-Subject": "koord.c.ev.nodestate.n1"}, fact.body)
    assert CATALOGUE.read(copied) is None
    assert CATALOGUE.read(StoredEvent(7, fact.ref, {}, b'{"stream":"KOORD_EV_c","seq":7}')) is None
