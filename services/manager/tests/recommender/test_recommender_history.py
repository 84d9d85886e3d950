"""What the recommender knows after a restart: its checkpoint and every report since, each once."""

import asyncio

import msgspec
import pytest
from koord_manager.domain.controllers.recommender.book import CHECKPOINT_FOLD, RecommenderBook, book_fingerprint
from koord_manager.domain.controllers.recommender.controller import RecommenderController
from koord_manager.domain.controllers.recommender.settings import read_settings
from koord_manager.shell.recommender_history import recall, save_checkpoint
from koordcore.bus.adapters.memory import MemoryObservationLog, MemorySnapshotStore
from koordcore.bus.client.connection import NoAnswer
from koordcore.bus.read.report_gate import ReportGate
from koordcore.bus.refusals import Refusals
from koordcore.events.envelope import AggregateRef, Origin
from koordcore.ports.eventlog import LogHead
from koordcore.ports.snapshots import state_digest
from koordcore.service.telemetry.logging import logger
from koordcore.values.timestamps import rfc3339
from structlog.testing import capture_logs
from support.manager.world import GIB, ManagerWorld, usage_of
from support.manual_clock import ManualClock
from support.until import until

LOGGER = logger("test")
GATE = ReportGate(ManualClock(), Refusals("test"))


def world() -> ManagerWorld:
    made = ManagerWorld()
    made.plain_node()
    target = {"type": "podSelector", "podSelector": {"matchLabels": {"app": "web"}}}
    metadata = {"namespace": "default", "name": "web"}
    made.custom("recommendations", {"kind": "Recommendation", "metadata": metadata, "spec": {"target": target}})
    made.pod("p", {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app"}]}}, on="n")
    return made


async def report(made: ManagerWorld, observations: MemoryObservationLog, minutes: int) -> None:
    for _ in range(minutes):
        made.pass_time(60)
        pod = made.view.pod("default", "p")
        assert pod is not None
        event = made.report(pods=[usage_of(pod[1].object, 500, GIB)])
        origin = Origin(causation_id=event.updated_at, correlation_id="n", actor="a", occurred_at=rfc3339(made.now))
        await observations.publish(AggregateRef("node", "n"), event, origin)


async def test_a_restart_takes_the_checkpoint_and_the_reports_since() -> None:
    made, observations, snapshots = world(), MemoryObservationLog(), MemorySnapshotStore()
    await report(made, observations, 30)
    first = RecommenderController()
    await recall(first, made.view, snapshots, observations, GATE, LOGGER)
    assert not first.loading
    (model,) = first.book.models.values()
    assert model.count == 30
    await save_checkpoint(first, snapshots, rfc3339(made.now), LOGGER, code_version="t")

    await report(made, observations, 12)
    second = RecommenderController()
    await recall(second, made.view, snapshots, observations, GATE, LOGGER)
    (model,) = second.book.models.values()
    assert model.count == 42
    assert second.book.position == (await observations.head()).last_seq


async def test_other_settings_of_learning_take_all_reports_again() -> None:
    made, observations, snapshots = world(), MemoryObservationLog(), MemorySnapshotStore()
    await report(made, observations, 30)
    first = RecommenderController()
    await recall(first, made.view, snapshots, observations, GATE, LOGGER)
    await save_checkpoint(first, snapshots, rfc3339(made.now), LOGGER, code_version="t")

    await report(made, observations, 12)
    second = RecommenderController(RecommenderBook(read_settings("cpuHalfLifeSeconds=600")))
    with capture_logs() as lines:
        await recall(second, made.view, snapshots, observations, GATE, LOGGER)
    (model,) = second.book.models.values()
    assert model.count == 42
    assert [line["reason"] for line in lines if line["event"] == "recommender_learns_anew"] == [
        "the settings have changed"
    ]


async def test_reports_that_have_all_expired_are_not_waited_for() -> None:
    made, observations = world(), MemoryObservationLog(keep=0)
    await report(made, observations, 3)
    rounds = RecommenderController()
    recalling = asyncio.create_task(recall(rounds, made.view, None, observations, GATE, LOGGER))
    try:
        await until(recalling.done)
    finally:
        recalling.cancel()
    assert not rounds.loading
    assert rounds.book.position == (await observations.head()).last_seq


async def test_without_a_recommendation_no_history_is_read() -> None:
    made, observations = world(), MemoryObservationLog()
    await report(made, observations, 3)
    bare = ManagerWorld()
    rounds = RecommenderController()
    await recall(rounds, bare.view, None, observations, GATE, LOGGER)
    assert rounds.book.models == {}
    assert rounds.book.position == (await observations.head()).last_seq


async def test_a_checkpoint_of_another_shape_is_passed_over_and_history_read_instead() -> None:
    made, observations, snapshots = world(), MemoryObservationLog(), MemorySnapshotStore()
    await report(made, observations, 5)
    good = RecommenderController()
    await recall(good, made.view, snapshots, observations, GATE, LOGGER)
    await save_checkpoint(good, snapshots, rfc3339(made.now), LOGGER, code_version="t")
    saved = await snapshots.newest(CHECKPOINT_FOLD, schema_fingerprint=book_fingerprint())
    assert saved is not None
    other = MemorySnapshotStore()
    await other.save(
        msgspec.structs.replace(saved, schema_fingerprint="older", state=(b"{}",), digest=state_digest([b"{}"]))
    )
    restarted = RecommenderController()
    await recall(restarted, made.view, other, observations, GATE, LOGGER)
    assert restarted.book.models == good.book.models


AWAY = 6
"""Requests that a log leaves unanswered."""


class AwayObservations(MemoryObservationLog):
    """Leaves the first requests for its head unanswered."""

    asked = 0

    async def head(self) -> LogHead:
        self.asked += 1
        if self.asked <= AWAY:
            raise NoAnswer("no answer")
        return await super().head()


async def test_a_log_that_is_away_is_told_once_and_asked_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    made, observations, delays, pause = world(), AwayObservations(), list[float](), asyncio.sleep

    async def slept(seconds: float) -> None:
        delays.append(seconds)
        await pause(0)

    rounds = RecommenderController()
    with capture_logs() as lines, monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", slept)
        await recall(rounds, made.view, None, observations, GATE, LOGGER)
    assert [line["event"] for line in lines] == ["recommender_history_away"]
    assert observations.asked == AWAY + 1
    assert delays[AWAY - 1] > 4 * delays[0]
    assert not rounds.loading
