"""A manager's two loops over a log in memory, for tests: documents in, facts out; reports in, batch resources out.

manager = Manager(MemoryLog())
async with running(manager):
    await manager.apply(NODE)
    await run_cycle(manager.context, manager.policies)
"""

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncGenerator
from itertools import count

from koord_manager.domain.admission.context.facts import ConfigNames
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.registry import Controllers
from koord_manager.shell.context import ManagerContext, TermState
from koord_manager.shell.documents.processing import serve_documents
from koord_manager.shell.intake import Intake, Result
from koordcore.bus.adapters.memory import MemoryDesiredStore, MemoryEventLog, MemoryLog
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, name_token
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordcore.ports.eventlog import Appended
from koordcore.ports.leadership import OnAcquired, OnLost, Term
from koordcore.protocol.manifests import read_documents
from koordcore.service.telemetry.logging import logger
from koordcore.service.telemetry.tracing import make_tracer
from koordcore.values.timestamps import rfc3339
from support.manual_clock import ManualClock

CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: slo-controller-config, namespace: koordinator-system}
data:
  colocation-config: '{"enable": true, "cpuReclaimThresholdPercent": 60, "memoryReclaimThresholdPercent": 65}'
  resource-threshold-config: '{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota"}}'
"""
NODE = "{apiVersion: v1, kind: Node, metadata: {name: n.1}, status: {capacity: {cpu: 10, memory: 100Gi, pods: 110}}}"


def pod(name: str, cpu: str = "1") -> str:
    container = f"{{name: c, image: i, resources: {{requests: {{cpu: {cpu}, memory: 1Gi}}}}}}"
    return f"{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{container}]}}}}"


class AlwaysLeading:
    """A candidate that leads for as long as a test runs, or never."""

    def __init__(self, *, leads: bool = True) -> None:
        self.term = Term("test", 1, 0.0) if leads else None
        self.holder: str | None = "test"

    def subscribe(self, *, acquired: OnAcquired | None = None, lost: OnLost | None = None) -> None: ...
    async def acquired(self) -> Term:
        assert self.term is not None
        return self.term

    async def lost(self, term: Term) -> str:
        await asyncio.Event().wait()
        return ""

    async def campaign(self) -> None: ...
    def withdraw(self, reason: str) -> None: ...
    def stand(self) -> None: ...
    async def resign(self) -> None: ...


class Manager:
    """A manager over a shared log, folding and serving until it is closed."""

    def __init__(
        self, log: MemoryLog, *, leads: bool = True, name: str = "m", config_names: ConfigNames | None = None
    ) -> None:
        self.view = ManagerView(config_names=config_names)
        self.intake = Intake()
        self.desired = MemoryDesiredStore()
        self.clock = ManualClock()
        self.policies = Controllers()
        numbers = count()
        self._moved = asyncio.Condition()
        self.event_log = MemoryEventLog(log)
        self.context = ManagerContext(
            view=self.view,
            intake=self.intake,
            log=self.event_log,
            desired=self.desired,
            clock=self.clock,
            leadership=AlwaysLeading(leads=leads),
            tracer=make_tracer(
                "manager", instance="t", cluster="t", otlp_endpoint=None, trace_file=None, sample_ratio=1
            ),
            logger=logger("test"),
            actor=f"manager/{name}",
            folded=self.folded,
            halted=lambda: None,
            new_uid=lambda: f"{name}-uid-{next(numbers)}",
            control_seconds=0.01,
            desired_seconds=0,
            term_state=TermState(),
            conflict_pause=lambda: random.uniform(0, 0.01),
        )

    async def fold(self) -> None:
        async for events in self.event_log.follow(0):
            for event in events:
                self.view.fold(event)
            async with self._moved:
                self._moved.notify_all()

    async def folded(self, seq: int) -> str | None:
        async with self._moved:
            await self._moved.wait_for(lambda: self.view.state.position >= seq)
        return None

    async def apply(self, text: str) -> list[Result]:
        return await self.intake.submit(read_documents(text.encode()), str(uuid.uuid4()))

    async def say(self, ref: AggregateRef, event: Event) -> None:
        """Append a fact of another service."""
        cause, at = str(uuid.uuid4()), rfc3339(self.clock.now())
        origin = Origin(causation_id=cause, correlation_id="t", actor="t", occurred_at=at)
        draft = Draft(ref, event, self.view.state.last_seq(ref))
        outcome = await self.event_log.append(CATALOGUE.seal([draft], origin))
        assert isinstance(outcome, Appended)

    def report(self, node: str, *, cpu_milli: int, system_milli: int = 100) -> None:
        report = NodeUsageReported(
            updated_at=rfc3339(self.clock.now()),
            report_interval_seconds=60,
            aggregate_duration_seconds=300,
            node_usage=Usage(cpu_milli + system_milli, 0),
            system_usage=Usage(system_milli, 1 << 30),
            pods=[
                PodUsage(
                    uid="u",
                    namespace="default",
                    name="web",
                    priority_class="koord-prod",
                    qos="LS",
                    usage=Usage(cpu_milli, 1 << 30),
                )
            ],
        )
        self.view.observe(1, name_token(node), report)


@contextlib.asynccontextmanager
async def running(*managers: Manager) -> AsyncGenerator[None]:
    tasks = [
        asyncio.create_task(work) for manager in managers for work in (manager.fold(), serve_documents(manager.context))
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
