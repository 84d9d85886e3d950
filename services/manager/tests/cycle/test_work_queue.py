"""The work queue: deduplicated and fair; failing objects are retried with back-off, and all others are decided."""

import asyncio
import itertools
import pickle
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from koord_manager.cycle import run_cycle
from koord_manager.domain.admission.options import Options
from koord_manager.domain.cluster.work_queue import LONGEST_DELAY_SECONDS, WorkQueue
from koord_manager.shell.controller_metrics import ControllerMetrics, QueueMetrics
from koord_manager.shell.documents.processing import process_documents
from koord_manager.shell.folding import read_report
from koord_manager.shell.reconcile import Decided, append_decided
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects import NamespaceObserved
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.protocol.objects import Namespace, ObjectMeta
from koordcore.service.telemetry.logging import logger
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from support.histories.recording import stored
from support.manager.loops import CONFIG, NODE, Manager, pod, running

POD = """{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}"""


class Broken(Options):
    def enabled(self, gate: str) -> bool:
        raise LookupError(gate)


OTHER = NODE.replace("n.1", "n.2")


@asynccontextmanager
async def counted_manager() -> AsyncGenerator[tuple[Manager, CollectorRegistry]]:
    manager, registry = Manager(MemoryLog()), CollectorRegistry()
    manager.context = manager.context._replace(metrics=ControllerMetrics(registry))
    async with running(manager):
        yield manager, registry


def timeless(at: str) -> NodeUsageReported:
    """A report whose time no clock can be compared with."""
    return NodeUsageReported(
        updated_at=at,
        report_interval_seconds=60,
        aggregate_duration_seconds=300,
        node_usage=Usage(1000, 0),
        system_usage=Usage(100, 1 << 30),
        pods=[],
    )


def batch_of(manager: Manager, token: str) -> int | None:
    policy = manager.view.policy(token)
    return policy.batch_cpu_milli if policy else None


async def test_a_report_that_breaks_the_calculation_of_its_node_leaves_the_others_and_mends_with_the_next() -> None:
    async with counted_manager() as (manager, registry):
        await manager.apply("\n---\n".join([CONFIG, NODE, OTHER]))
        manager.view.observe(1, "n_1", timeless("2000-01-01T00:00:00"))
        manager.report("n.2", cpu_milli=1000)

        did = await run_cycle(manager.context, manager.policies)

        assert "1 nodes overcommitted" in did
        assert batch_of(manager, "n_2") is not None
        assert batch_of(manager, "n_1") is None
        failures, failing = "koord_manager_decision_failures_total", "koord_manager_failing_objects"
        assert registry.get_sample_value(failures, {"controller": "overcommit"}) == 1
        assert registry.get_sample_value(failing, {"controller": "overcommit"}) == 1
        assert manager.view.policy("n_1") is not None, "its NodeSLO does not depend on the report"

        await run_cycle(manager.context, manager.policies)  # the facts of the first round touched the node
        before = registry.get_sample_value(failures, {"controller": "overcommit"}) or 0
        await run_cycle(manager.context, manager.policies)
        assert registry.get_sample_value(failures, {"controller": "overcommit"}) == before, "it is not due yet"
        await manager.clock.advance(1)
        await run_cycle(manager.context, manager.policies)
        assert registry.get_sample_value(failures, {"controller": "overcommit"}) == before + 1

        manager.report("n.1", cpu_milli=1000)
        await run_cycle(manager.context, manager.policies)
        assert batch_of(manager, "n_1") == batch_of(manager, "n_2")
        assert registry.get_sample_value(failing, {"controller": "overcommit"}) == 0


async def test_a_failing_object_is_logged_by_name_with_its_cause() -> None:
    async with counted_manager() as (manager, _):
        await manager.apply("\n---\n".join([CONFIG, NODE]))
        manager.view.observe(1, "n_1", timeless("2000-01-01T00:00:00"))
        with capture_logs() as lines:
            await run_cycle(manager.context, manager.policies)

    (line,) = [line for line in lines if line["event"] == "decision_failed"]
    assert (line["controller"], line["object"]) == ("overcommit", "n.1")
    assert line["error"].startswith("TypeError: can't subtract")


async def test_a_step_that_fails_waits_longer_each_time_and_the_others_go_on() -> None:
    async with counted_manager() as (manager, registry):
        await manager.apply("\n---\n".join([CONFIG, NODE]))
        manager.report("n.1", cpu_milli=1000)
        broken = manager.policies.quotas
        manager.policies.quotas = None  # type: ignore[assignment]
        failures: list[float | None] = []
        for _ in range(8):
            await run_cycle(manager.context, manager.policies)
            found = registry.get_sample_value("koord_manager_decision_failures_total", {"controller": "quotaprofile"})
            failures.append(found)
            await manager.clock.advance(1)

        assert failures == [1, 2, 2, 3, 3, 3, 3, 4]
        assert batch_of(manager, "n_1") is not None
        manager.policies.quotas = broken
        await manager.clock.advance(LONGEST_DELAY_SECONDS)
        await run_cycle(manager.context, manager.policies)
        assert list(manager.view.queue.failing()) == []


async def test_a_fact_that_cannot_be_sent_holds_up_no_other() -> None:
    def named(name: str, label: str) -> Decided:
        meta = ObjectMeta(name=name, labels={"l": label})
        event = NamespaceObserved(object=Namespace(metadata=meta))
        return Decided(name, [Draft(AggregateRef("namespace", name), event, 0)])

    async with counted_manager() as (manager, _):
        decided = [named("a", "1"), named("b", "\ud800"), named("c", "1")]  # half a character: not UTF-8
        queue = manager.view.queue
        sent = await append_decided(manager.context, "c", decided, manager.clock.now())

        assert [draft.ref.id for draft in sent] == ["a", "c"]
        assert list(queue.failing()) == [("c", "b")]
        assert queue.take("c") == []
        queue.begin(1)
        assert queue.take("c") == ["b"]
        assert len(await append_decided(manager.context, "c", [named("b", "1")], manager.clock.now())) == 1
        assert list(queue.failing()) == []


async def test_a_document_that_cannot_be_decided_fails_by_itself() -> None:
    manager = Manager(MemoryLog())
    asked = asyncio.create_task(manager.apply(POD))
    broken = manager.context._replace(options=Broken())
    await process_documents(broken, await manager.intake.take(1))
    (result,) = await asked
    async with running(manager):
        (answer,) = await manager.apply(POD)

    assert result.action == "failed"
    assert answer.action == "created"


async def test_a_document_that_is_too_large_for_the_log_is_refused_by_itself() -> None:
    manager = Manager(MemoryLog(max_payload=4096))
    selector = ", ".join(f"label-{number}: x" for number in range(500))
    spec = f"{{nodeSelector: {{{selector}}}, containers: [{{name: c, image: i}}]}}"
    large = f"{{apiVersion: v1, kind: Pod, metadata: {{name: large}}, spec: {spec}}}"
    async with running(manager):
        answers = await manager.apply("\n---\n".join((pod("a"), large, pod("b"))))

    assert [answer.action for answer in answers] == ["created", "refused", "created"]
    (error,) = answers[1].errors
    assert error.rule.startswith("cannot be stored: podspec.m-uid-")
    assert error.rule.endswith("bytes; the log takes 3,840")


@pytest.mark.parametrize("at", ["yesterday", "", "2026-01-01T00:00:00"])
def test_a_report_without_a_time_that_can_be_compared_is_not_taken_in(at: str) -> None:
    for time, is_taken_in in ((at, False), ("2026-01-01T00:00:00Z", True)):
        draft = Draft(AggregateRef("node", "n"), timeless(time), 0)
        assert (read_report(stored(1, draft), logger("test")) is not None) is is_taken_in


@given(st.lists(st.floats(0, 1000), max_size=30))
def test_what_fails_is_ready_again_after_at_most_the_longest_delay_and_never_before(steps: Sequence[float]) -> None:
    queue, now = WorkQueue(), 0.0
    reported: list[float] = []
    for step in steps:
        now += step
        queue.begin(now)
        queue.fail("c", "o", ValueError())
        reported += [now for failure in queue.take_failures() if failure.is_new]
    assert all(after - before >= 1 for before, after in itertools.pairwise(reported))
    queue.begin(now + LONGEST_DELAY_SECONDS)
    assert queue.take("c") == (["o"] if steps else [])
    queue.forget("c", "o")
    assert not list(queue.failing())


@example([("b", "add"), ("b", "fail"), ("a", "take"), ("b", "resync")])
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["add", "take", "fail", "resync", "after"]))))
def test_no_key_is_lost_or_queued_twice(steps: list[tuple[str, str]]) -> None:
    """Every key that was added, failed or given a timer since it was last taken is taken once in the end."""
    queue, pending = WorkQueue(), set[str]()
    for number, (name, step) in enumerate(steps):
        queue.begin(number / 10)
        match step:
            case "take":
                taken = queue.take("c", 1)
                assert set(taken) <= pending
                pending.difference_update(taken)
                for done in taken:
                    queue.forget("c", done)
                continue
            case "add":
                queue.add("c", name)
            case "resync":
                queue.resync("c", [name])
            case "after":
                queue.add_after("c", name, number / 10 + 5)
            case _:
                queue.fail("c", name, ValueError())
        pending.add(name)
    queue.begin(1_000_000)
    assert sorted(queue.take("c")) == sorted(pending)


def test_keys_are_taken_in_the_order_in_which_they_were_added_and_skipped_ones_stay() -> None:
    queue = WorkQueue()
    queue.add_all("c", "abca")
    assert queue.take("c", 1, skip={"a"}) == ["b"]
    queue.add("c", "b")
    assert queue.take("c") == ["a", "c", "b"]


def test_a_change_makes_a_failing_object_ready_at_once_and_a_resync_does_not() -> None:
    queue = WorkQueue()
    queue.fail("c", "a", ValueError())
    queue.resync("c", "ab")
    assert queue.take("c") == ["b"]
    queue.add("c", "a")
    assert queue.take("c") == ["a"]
    queue.fail("c", "a", ValueError())
    assert [failure.is_new for failure in queue.take_failures()] == [True, False]
    queue.begin(1)
    assert queue.take("c") == ["a"], "one timer, however often it failed"


def test_the_next_timer_is_known() -> None:
    queue = WorkQueue()
    assert queue.next_due is None
    queue.add_after("c", "a", 5)
    queue.add_after("c", "b", 7)
    assert queue.next_due == 5
    queue.add("c", "a")
    assert queue.next_due == 7


def test_a_timer_that_is_set_again_for_the_same_time_takes_no_more_room() -> None:
    queue = WorkQueue(jitter=float)
    queue.add_after("c", "a", 5)
    size = len(pickle.dumps(queue))
    for _ in range(1000):
        queue.add_after("c", "a", 5)
    assert len(pickle.dumps(queue)) == size


def test_a_retry_is_not_later_than_its_longest_delay() -> None:
    queue = WorkQueue(first_delay=1, longest_delay=30)
    for now in range(1, 400, 40):
        queue.begin(now)
        queue.take("c")
        queue.add_rate_limited("c", "a")
    queue.begin(400)
    queue.take("c")
    queue.add_rate_limited("c", "a", longest_delay=3)
    assert queue.next_due == 403
    queue.begin(403)
    assert queue.take("c") == ["a"]


def test_metrics_have_the_names_of_client_go() -> None:
    registry, queue = CollectorRegistry(), WorkQueue()
    metrics = QueueMetrics(registry)
    metrics.add(lambda: queue)
    queue.on_take = metrics.taken
    queue.begin(1)
    queue.add_all("c", "ab")
    queue.begin(4)
    label = {"name": "c"}
    assert registry.get_sample_value("workqueue_depth", label) == 2
    assert registry.get_sample_value("workqueue_longest_wait_seconds", label) == 3
    queue.take("c")
    queue.fail("c", "a", ValueError())
    assert registry.get_sample_value("workqueue_adds_total", label) == 2
    assert registry.get_sample_value("workqueue_retries_total", label) == 1
    assert registry.get_sample_value("workqueue_queue_duration_seconds_sum", label) == 6
