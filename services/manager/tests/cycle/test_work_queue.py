"""The work queue: deduplicated and fair; failing objects are retried with back-off, and all others are decided."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from koord_manager.cycle import run_cycle
from koord_manager.domain.admission.options import Options
from koord_manager.domain.cluster.work_queue import LONGEST_DELAY_SECONDS
from koord_manager.shell.controller_metrics import ControllerMetrics
from koord_manager.shell.documents.processing import process_documents
from koord_manager.shell.reconcile import Decided, append_decided
from koordcore.bus.adapters.memory import MemoryLog
from koordcore.events.envelope import AggregateRef, Draft
from koordcore.events.objects import NamespaceObserved
from koordcore.events.observation import NodeUsageReported, Usage
from koordcore.protocol.objects import Namespace, ObjectMeta
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
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
