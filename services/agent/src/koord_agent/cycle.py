"""The agent's main loop over all nodes of its process: advance, take, run, look and enforce, say, report.

One task owns the agents. Between two rounds a pushed pod is started at once; the bus is never waited for here: facts go
to the outbox, reports to a ring. Next modules to read: `shell.node_agent` (one node's round), `shell.desired_state`,
`shell.outbox`.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from koordcore.events.agents.nodestate import AgentStarted, BeCpuSuppressed, PodsStarted, PodsStopped
from koordcore.events.envelope import AggregateRef, Event, Origin, name_token
from koordcore.ports.clock import Clock
from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import Logger
from koordcore.service.telemetry.tracing import Tracer, parse_traceparent
from koordcore.values.timestamps import rfc3339

from koord_agent.shell.bus.bus_link import Link
from koord_agent.shell.bus.desired_state import DesiredStates
from koord_agent.shell.bus.outbox import Fact, Outbox
from koord_agent.shell.metrics.agent_metrics import AgentMetrics
from koord_agent.shell.node.node_agent import NodeAgent
from koord_agent.shell.store.audit_log import AuditLog
from koord_agent.shell.store.local_store import Kept, NotKept

if TYPE_CHECKING:
    from koord_agent.shell.host.simulated import SimulatedFleet

LONGEST_STRETCH_SECONDS: Final = 0.02
"""Of a round without letting pushes, appends and probes have the event loop."""
GATHER_SECONDS: Final = 0.02
"""Pods that are pushed within this time are started together and share an append."""
SAVED_PER_ROUND: Final = 200
GARBAGE_ROUNDS: Final = 64
UNSAID_FACTS: Final = 1_000
"""Facts beside those about pods that are offered to a full outbox again; the oldest give way."""
_HOST: Final = SystemClock()


@dataclass(frozen=True, kw_only=True, eq=False)
class Cycle:
    """The loop and what it works with.

    fleet          the simulated machines; None: this machine, whose files are read in a thread
    tick_seconds   between rounds, in the host's time
    start_id       of this process's life: the cause of what nobody asked for
    changed        nodes whose desired state changed; `wakeup` is set with each
    audit          the audit log; None = switched off
    reports        whether usage is reported at all
    """

    agents: Mapping[str, NodeAgent]
    fleet: "SimulatedFleet | None"
    states: DesiredStates
    outbox: Outbox
    kept: Kept
    link: Link
    clock: Clock
    tracer: Tracer
    metrics: AgentMetrics
    logger: Logger
    tick_seconds: float
    start_id: str
    version: str
    changed: set[str]
    wakeup: asyncio.Event
    audit: AuditLog | None = None
    reports: bool = True
    _slots: dict[str, int] = field(default_factory=dict[str, int])
    _problems: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    _said: list[str] = field(default_factory=lambda: [""])
    _rounds: list[int] = field(default_factory=lambda: [0])
    _unsaid: list[Fact] = field(default_factory=list[Fact])
    _disk: list[str] = field(default_factory=lambda: [""])

    async def run(self) -> None:
        """Rounds at a fixed pace, pushed pods between them, until cancelled."""
        self.begin()
        due = _HOST.monotonic()
        while True:
            if (left := due - _HOST.monotonic()) > 0:
                await self._something_changes(left)
            if _HOST.monotonic() < due:
                self.take_changes()
                await asyncio.sleep(GATHER_SECONDS)
            else:
                await self.round()
                # A round that took long is followed by a rest, not by the rounds that were missed.
                due = max(due + self.tick_seconds, _HOST.monotonic() + self.tick_seconds / 2)

    def begin(self) -> None:
        """Says that the agents took over."""
        host = "linux" if self.fleet is None else "simulated"
        event = AgentStarted(host=host, version=self.version)
        self._say([Fact(node, event, self._origin(node)) for node in self.agents])
        for node in self.agents:
            self.metrics.started(node, self.clock.unix())

    def end(self) -> None:
        """Says what the agents leave in place; after the last round."""
        now_ms = int(self.clock.unix() * 1000)
        facts = [fact for node, agent in self.agents.items() for fact in self._facts(node, agent.farewell(now_ms))]
        self._say(facts)
        for agent in self.agents.values():
            agent.close(now_ms)

    async def round(self) -> None:
        """One round over all nodes."""
        began, now_ms = _HOST.monotonic(), int(self.clock.unix() * 1000)
        # 1. simulated machines live on until now
        if self.fleet is not None:
            self.fleet.advance(now_ms / 1000)
        # 2. what is wanted since the last round: pods start and end
        self.take_changes()
        # 3. each node: run its pods, look, judge, act
        facts: list[Fact] = []
        suppressed = await self._tick_all(now_ms, facts)
        # 4. what was done goes to the outbox
        self._say(facts)
        # 5. reports that are due
        reports = await self._report_all(now_ms)
        # 6. remember what was wanted; forget old samples
        self._save_desired(now_ms)
        self._collect_garbage(now_ms)
        if self.audit is not None:
            self.audit.flush_if_due(_HOST.monotonic())
        # 7. one line for the operator
        self._finish(began, suppressed=suppressed, reports=reports)

    def _save_desired(self, now_ms: int) -> None:
        values = self.states.unsaved(SAVED_PER_ROUND)
        if not values:
            return
        try:
            self.kept.save_desired(values, now_ms)
        except NotKept as error:
            self.states.not_saved(values)
            if not self._disk[0]:
                self.logger.error("desired_not_kept", reason=str(error))
            self._disk[0] = str(error)
        else:
            self._disk[0] = ""

    def take_changes(self) -> None:
        """Gives changed desired states to their agents and lets these start and end pods."""
        self.wakeup.clear()
        nodes, facts = sorted(self.changed), list[Fact]()
        self.changed.clear()
        for node in nodes:
            agent = self.agents[node]
            agent.desired = self.states.views.get(node)
            done = agent.run_pods()
            facts.extend(self._facts(node, done.facts))
            self._complain(node, done.problems)
        self._say(facts)

    async def _tick_all(self, now_ms: int, facts: list[Fact]) -> int:
        suppressed = 0
        stretch = _HOST.monotonic()
        for node, agent in self.agents.items():
            tick = (
                agent.run_cycle(now_ms) if self.fleet is not None else await asyncio.to_thread(agent.run_cycle, now_ms)
            )
            facts.extend(self._facts(node, tick.facts))
            self._complain(node, tick.problems)
            suppressed += agent.be_quota_us > 0
            self.metrics.protected(node, tick.plans, tick.facts)
            if self.fleet is None:
                self.logger.debug("node_round", node=node, sentence=tick.sentence)
            if _HOST.monotonic() - stretch >= LONGEST_STRETCH_SECONDS:
                # what these nodes did is said before what happens to them next: pods start before they stop
                self._say(facts)
                facts.clear()
            stretch = await self._let_others_run(stretch)
        return suppressed

    async def _report_all(self, now_ms: int) -> int:
        """Publishes the reports that are due: once per report interval, each node at its own moment of it."""
        ports, count = self.link.ports, 0
        if ports is None or not self.reports:
            return 0
        stretch = _HOST.monotonic()
        for node, agent in self.agents.items():
            if agent.desired is None:
                continue
            interval_ms = agent.desired.collect.report_interval_seconds * 1000
            slot = (now_ms + _phase(node) * interval_ms // 1000) // interval_ms
            if slot == self._slots.get(node):
                continue
            # a real machine is asked for its pressure, and a day's models for their peaks
            report = (
                agent.report(now_ms, _text_of)
                if self.fleet is not None
                else await asyncio.to_thread(agent.report, now_ms, _text_of)
            )
            if report is None or (report.node_usage is None and node not in self._slots):
                continue  # the first interval of a machine has no usage yet
            self._slots[node] = slot
            origin = self._origin(node, causation=f"{self.start_id}/{slot}")
            await ports.reports.publish(AggregateRef("node", name_token(node)), report, origin)
            count += 1
            stretch = await self._let_others_run(stretch)
        self.metrics.reports.inc(count)
        return count

    def _facts(self, node: str, events: Iterable[Event]) -> list[Fact]:
        return [
            Fact(node, event, self._origin_of_pods(node, event.pods))
            if isinstance(event, PodsStarted)
            else Fact(node, event, self._origin(node))
            for event in events
        ]

    def _origin(self, node: str, *, causation: str = "") -> Origin:
        return Origin(
            causation_id=causation or self.start_id,
            correlation_id=node,
            actor=f"agent/{node}",
            occurred_at=rfc3339(self.clock.now()),
        )

    def _origin_of_pods(self, node: str, uids: Sequence[str]) -> Origin:
        """Headers of started pods: each continues the trace of its placement; the fact carries that of the first."""
        causes = [(uid, self.states.cause_of(node, uid)) for uid in uids]
        contexts = [
            self.tracer.emit(
                "start pod",
                parse_traceparent(cause.traceparent, cause.tracestate) if cause else None,
                attributes={"pod_uid": uid, "node": node},
            )
            for uid, cause in causes
        ]
        uid, first = causes[0]
        return Origin(
            causation_id=first.event_id if first else self.start_id,
            correlation_id=(first.correlation_id if first else "") or uid,
            actor=f"agent/{node}",
            occurred_at=rfc3339(self.clock.now()),
            traceparent=contexts[0].traceparent,
            tracestate=contexts[0].state,
        )

    def _say(self, facts: Sequence[Fact]) -> None:
        if not facts and not self._unsaid:
            return
        waiting, self._unsaid[:] = [*self._unsaid, *facts], []
        for fact in self.outbox.put(waiting):
            if isinstance(fact.event, PodsStarted | PodsStopped):
                self.agents[fact.node].not_said((fact.event,))
            else:
                self._unsaid.append(fact)
        del self._unsaid[:-UNSAID_FACTS]
        for fact in facts:
            if isinstance(fact.event, BeCpuSuppressed):
                self.logger.debug("be_suppressed", node=fact.node, sentence=fact.event.reason)

    def _complain(self, node: str, problems: tuple[str, ...]) -> None:
        """Logs what could not be done, once until it changes."""
        if problems == self._problems.get(node, ()):
            return
        for problem in problems:
            if problem not in self._problems.get(node, ()):
                self.metrics.problems.inc()
                self.logger.warning("node_problem", node=node, problem=problem)
        self._problems[node] = problems

    def _collect_garbage(self, now_ms: int) -> None:
        self._rounds[0] += 1
        for index, agent in enumerate(self.agents.values()):
            if (index + self._rounds[0]) % GARBAGE_ROUNDS == 0:
                agent.collect_garbage(now_ms)

    def _finish(self, began: float, *, suppressed: int, reports: int) -> None:
        took, running = _HOST.monotonic() - began, sum(len(agent.running_pods) for agent in self.agents.values())
        self.metrics.round_seconds.observe(took)
        self.metrics.pods.set(running)
        sentence = f"{len(self.agents)} nodes, {running} pods run, best effort suppressed on {suppressed}"
        log = self.logger.info if sentence != self._said[0] else self.logger.debug
        self._said[0] = sentence
        log("round", sentence=sentence, reports=reports, outbox=len(self.outbox), seconds=round(took, 3))

    async def _let_others_run(self, since: float) -> float:
        """Gives the event loop away when this stretch took long; the begin of the present stretch.

        Pods that were pushed meanwhile start now, not only after the round.
        """
        if _HOST.monotonic() - since < LONGEST_STRETCH_SECONDS:
            return since
        await asyncio.sleep(0)
        if self.changed:
            self.take_changes()
        return _HOST.monotonic()

    async def _something_changes(self, real_seconds: float) -> None:
        try:
            async with asyncio.timeout(real_seconds):
                await self.wakeup.wait()
        except TimeoutError:
            return


def _phase(node: str) -> int:
    """A node's moment within its report interval, in thousandths: spreads reports evenly, the same after a restart."""
    return int.from_bytes(hashlib.blake2b(node.encode(), digest_size=4).digest()) % 1000


def _text_of(at_ms: int) -> str:
    return rfc3339(datetime.fromtimestamp(at_ms / 1000, UTC))
