"""A log that is not as it has to be: deciding stops as a whole, is told once, and goes on when it is mended."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from koord_manager.cycle import run_cycle
from koordcore.bus.adapters.memory import MemoryEventLog, MemoryLog
from koordcore.events.envelope import NewEvent
from koordcore.ports.eventlog import AppendOutcome, Misconfigured
from structlog.testing import capture_logs
from support.kubernetes.gateway_world import gateway_world
from support.kubernetes.gateway_world import pod as gateway_pod
from support.manager.loops import CONFIG, NODE, Manager, running


class LogOfOthers(MemoryEventLog):
    """Takes nothing from us while it is not ours."""

    def __init__(self, log: MemoryLog) -> None:
        super().__init__(log)
        self.is_ours = True
        self.asked = 0

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        self.asked += 1
        if not self.is_ours:
            raise Misconfigured("koord.t.ev: batches are disabled")
        return await super().append(events, deadline=deadline)


async def test_nothing_is_decided_by_a_misconfigured_log_until_it_is_mended() -> None:
    log = MemoryLog()
    manager, events = Manager(log), LogOfOthers(log)
    manager.context = manager.context._replace(log=events)
    nodes = [NODE.replace("n.1", f"n.{number}") for number in range(50)]
    async with running(manager):
        await manager.apply("\n---\n".join([CONFIG, *nodes]))
        for number in range(50):
            manager.report(f"n.{number}", cpu_milli=1000)
        events.is_ours, events.asked = False, 0

        with capture_logs() as lines:
            await run_cycle(manager.context, manager.policies)
            tried = events.asked
            await run_cycle(manager.context, manager.policies)
        told = [(line["controller"], line["object"]) for line in lines if line["event"] == "decision_failed"]
        assert told == [("node-policies", "(the whole controller)"), ("overcommit", "(the whole controller)")]
        assert events.asked == tried == 2, "not each decision by itself, and not again at once"

        events.is_ours = True
        await manager.clock.advance(1)
        await run_cycle(manager.context, manager.policies)
        policies = [manager.view.policy(f"n_{number}") for number in range(50)]
    assert all(policy is not None and policy.slo is not None for policy in policies)
    assert all(policy is not None and policy.batch_cpu_milli is not None for policy in policies)


async def test_documents_fail_by_a_misconfigured_log_and_are_taken_when_it_is_mended() -> None:
    log = MemoryLog()
    manager, events = Manager(log), LogOfOthers(log)
    manager.context = manager.context._replace(log=events)
    async with running(manager):
        events.is_ours = False
        (failed,) = await manager.apply(NODE)
        events.is_ours = True
        (created,) = await manager.apply(NODE)

    assert failed.action == "failed"
    assert (
        failed.errors[0].rule == "whether the document is stored is unknown, because the log cannot store anything: "
        "koord.t.ev: batches are disabled"
    )
    assert created.action == "created"


async def test_a_misconfigured_log_ends_the_gateways_term_not_the_gateway_and_it_goes_on_when_that_is_mended(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    events = LogOfOthers(log)
    async with gateway_world(tmp_path, begin=False) as world:
        world.bus = dataclasses.replace(world.bus, events=events)
        with capture_logs() as lines:
            await world.begin()
            await world.server.apply(gateway_pod("a"))
            await world.mirrored("a")

            events.is_ours = False
            await world.server.apply(gateway_pod("b"))
            await world.until(lambda: any(line["event"] == "gateway_stopped" for line in lines))
            assert not world.gateway.is_idle
            assert world.spec(world.uid("b")) is None

            events.is_ours = True
            await world.mirrored("b")
            await world.until(lambda: world.gateway.is_idle)
    told = [line["reason"] for line in lines if line["event"] == "gateway_stopped"]
    assert set(told) == {"koord.t.ev: batches are disabled"}
