"""The main loop of the agent over all nodes of its process.

One task owns the agents. Between two cycles it starts pushed pods at once. It never waits for the bus: facts go to the
outbox, reports to a ring. Next modules to read: `shell.node.node_agent` (the cycle of one node),
`shell.bus.fact_publisher`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from koordcore.events.nodestate import AgentStarted
from koordcore.ports.clock import Clock
from koordcore.service.clock import SystemClock
from koordcore.service.health import WorkWatch
from koordcore.service.telemetry.logging import Logger

from koord_agent.domain.failure import failure
from koord_agent.domain.node.cycle_times import CycleTimes, Step
from koord_agent.shell.bus.desired_state import DesiredStates
from koord_agent.shell.bus.fact_publisher import Fact, FactPublisher
from koord_agent.shell.bus.report_publisher import ReportPublisher
from koord_agent.shell.metrics.agent_metrics import AgentMetrics, ProblemLog
from koord_agent.shell.node.node_agent import CYCLE_FAILED, CycleResult, NodeAgent, nothing_done
from koord_agent.shell.node.threads import finished_in
from koord_agent.shell.store.audit_log import AuditLog
from koord_agent.shell.store.local_store import DesiredSaver

LONGEST_STRETCH_SECONDS: Final = 0.02
"""Time after which a cycle yields to other tasks: pushes, appends and probes."""
GATHER_SECONDS: Final = 0.02
"""Time for which pushed pods are collected, so that they start together and share an append."""
TIMER_SECONDS: Final = 0.001
"""Resolution of the event loop's timers. What is due then would else be asked for several times."""
GARBAGE_CYCLES: Final = 64
_HOST: Final = SystemClock()


@dataclass(slots=True, kw_only=True, eq=False)
class NodeCycles:
    agents: Mapping[str, NodeAgent]
    # Whether the nodes are simulated. If not, each cycle runs in a thread, because it reads files of this machine.
    is_simulated: bool
    facts: FactPublisher
    problems: ProblemLog
    metrics: AgentMetrics
    logger: Logger
    # One, so that each cycle finds its memory where the last one left it
    _thread: Executor = field(default_factory=partial(ThreadPoolExecutor, max_workers=1, thread_name_prefix="cycle"))

    def begin(self, version: str, now: float) -> None:
        event = AgentStarted(host="simulated" if self.is_simulated else "linux", version=version)
        self.facts.publish([fact for node in self.agents for fact in self.facts.facts(node, (event,))])
        for node in self.agents:
            self.metrics.started(node, now)

    async def run(self, now_ms: int, *, is_long: Callable[[], bool], breathe: Callable[[], Awaitable[None]]) -> int:
        """Run the cycle of each node, publish what was done, and return on how many nodes best effort is suppressed.

        `breathe` is called if `is_long` tells that other tasks have waited for long. It starts pods that were pushed.
        """
        suppressed, facts = 0, list[Fact]()
        try:
            for node, agent in self.agents.items():
                done = await self._run_node(agent, now_ms, facts)
                facts.extend(self.facts.facts(node, done.facts))
                self.problems.tell(node, done.pod_problems, of="pods")
                self.problems.tell(node, done.problems, of="cycle")
                self.metrics.protected(node, done.plans, done.facts)
                suppressed += agent.be_quota_us > 0
                if is_long():
                    # Facts are published before pushed pods start: a pod starts before it stops.
                    self.facts.publish(facts)
                    facts.clear()
                await breathe()
        finally:
            self.facts.publish(facts)  # also if the process ends in the middle of the cycle
        return suppressed

    def end(self, now_ms: int) -> None:
        """Publish the last facts of all nodes, such as the kernel values that stay in force, and close the nodes.

        An error is logged; it keeps neither a node from being closed nor the others from their end.
        """
        for node, agent in self.agents.items():
            try:
                self.facts.publish(self.facts.facts(node, agent.farewell(now_ms)))
            except Exception as error:  # noqa: BLE001 - one node never keeps the others from their end
                self.problems.tell(node, (failure("the last facts are missing", error),), of="farewell")
            finally:
                self._close(node, agent, now_ms)

    def _close(self, node: str, agent: NodeAgent, now_ms: int) -> None:
        try:
            trouble = agent.measuring.close(now_ms)
        except Exception as error:  # noqa: BLE001 - as for the farewell
            trouble = failure("it is not closed", error)
        self.problems.tell(node, () if trouble is None else (trouble,), of="close")

    @property
    def watches_load(self) -> bool:
        """Whether `risen` has something to look at."""
        return any(agent.watches_load for agent in self.agents.values())

    def risen(self) -> tuple[NodeAgent, ...]:
        """Look between two cycles at which nodes the load rose."""
        return tuple([agent for agent in self.agents.values() if agent.load_rose()])  # several times a second

    async def answer(self, risen: Iterable[NodeAgent], now_ms: int) -> None:
        """Limit best effort on these nodes at once."""
        for agent in risen:
            facts = list[Fact]()
            try:
                done = await self._in_thread(agent, partial(agent.answer_rise, now_ms), facts)
                facts.extend(self.facts.facts(agent.node, done.facts))
                self.problems.tell(agent.node, done.problems, of="load")
            finally:
                self.facts.publish(facts)

    async def _run_node(self, agent: NodeAgent, now_ms: int, facts: list[Fact]) -> CycleResult:
        """If the task is cancelled, the facts of the cycle are added to `facts`."""
        if self.is_simulated:
            return agent.run_cycle(now_ms)
        return await self._in_thread(agent, partial(agent.run_cycle, now_ms), facts)

    async def _in_thread(self, agent: NodeAgent, run: Callable[[], CycleResult], facts: list[Fact]) -> CycleResult:
        ended: list[CycleResult] = []

        def cycle() -> CycleResult:
            ended.append(run())
            return ended[0]

        try:
            done = await finished_in(self._thread, cycle)
        except asyncio.CancelledError:
            # What the cycle did is in force: a pod that it evicted would be gone without a reason.
            facts.extend(fact for done in ended for fact in self.facts.facts(agent.node, done.facts))
            raise
        except RuntimeError as error:  # the machine has no room for a thread; the next cycle tries again
            problem = failure(CYCLE_FAILED, error)
            return nothing_done(problem, problems=(problem,))
        self.logger.debug("node_cycle", node=agent.node, sentence=done.sentence)
        return done


@dataclass(kw_only=True, eq=False)
class Cycle:
    """The main loop, and the parts that it uses."""

    agents: Mapping[str, NodeAgent]
    nodes: NodeCycles
    # Advances simulated machines to a time in seconds. None means this machine.
    advance: Callable[[float], None] | None
    states: DesiredStates
    facts: FactPublisher
    reports: ReportPublisher
    problems: ProblemLog
    saver: DesiredSaver
    audit: AuditLog | None  # The audit log. None means switched off.
    clock: Clock
    metrics: AgentMetrics
    logger: Logger
    cycle_seconds: float  # Seconds between cycles, in the time of the host
    version: str
    changed: set[str]  # Nodes whose desired state changed and is not passed to their agents yet
    wakeup: asyncio.Event  # Set whenever a node is added to `changed`
    watch: WorkWatch  # Liveness check of the cycle, which hangs if a file, a disk or a device does not answer
    _cycles: int = 0
    _risen: tuple[NodeAgent, ...] = ()
    _sentence: str = ""
    _stretch: float = field(default_factory=_HOST.monotonic)

    async def run(self) -> None:
        """Run a cycle at a fixed pace, start pushed pods and look at the load in between, until cancelled."""
        self.begin()
        times = CycleTimes(self.cycle_seconds, due=_HOST.monotonic())
        while True:
            times.is_looking = self.nodes.watches_load
            await self._something_happens(times)
            if times.step(_HOST.monotonic()) is Step.CYCLE:
                with self.watch:
                    await self.run_cycle()
                times.done(Step.CYCLE, _HOST.monotonic())
            elif self._risen:
                with self.watch:
                    await self.nodes.answer(self._risen, int(self.clock.unix() * 1000))
                times.done(Step.LOOK, _HOST.monotonic())
                self.take_changes()
            else:
                self.take_changes()
                await asyncio.sleep(GATHER_SECONDS)
            self._risen = ()

    async def run_cycle(self) -> None:
        """Run one cycle: measure and protect every node, publish facts and reports, and save what changed."""
        began, now_ms = _HOST.monotonic(), int(self.clock.unix() * 1000)
        self._stretch = began
        # 1. let simulated machines run until now
        if self.advance is not None:
            self.advance(now_ms / 1000)
        # 2. start and end pods whose desired state changed
        self.take_changes()
        # 3. measure and protect every node, publish what was done
        suppressed = await self.nodes.run(now_ms, is_long=self._is_long, breathe=self._breathe)
        # 4. publish the reports that are due
        reports = await self.reports.publish_due(self.agents, now_ms, self._breathe)
        # 5. save desired states, drop old samples, flush the audit log
        self.saver.save(now_ms)
        self._collect_garbage(now_ms)
        if self.audit is not None:
            self.audit.flush_if_due(_HOST.monotonic())
        # 6. tell the operator in one line
        self._tell(_HOST.monotonic() - began, suppressed=suppressed, reports=reports)

    def take_changes(self) -> None:
        """Pass changed desired states to the agents, which start and end pods, and publish their facts."""
        self.wakeup.clear()
        nodes, facts = sorted(self.changed), list[Fact]()
        self.changed.clear()
        for node in nodes:
            agent = self.agents[node]
            agent.desired = self.states.views.get(node)
            done = agent.run_pods()
            facts.extend(self.facts.facts(node, done.facts))
            self.problems.tell(node, done.problems, of="pods")
        self.facts.publish(facts)

    def begin(self) -> None:
        self.nodes.begin(self.version, self.clock.unix())

    def end(self) -> None:
        self.nodes.end(int(self.clock.unix() * 1000))

    def _collect_garbage(self, now_ms: int) -> None:
        """Drop old samples of some nodes, so that each node is handled once per `GARBAGE_CYCLES`."""
        self._cycles += 1
        for index, agent in enumerate(self.agents.values()):
            if (index + self._cycles) % GARBAGE_CYCLES == 0:
                agent.measuring.collect_garbage(now_ms)

    def _tell(self, seconds: float, *, suppressed: int, reports: int) -> None:
        running = sum(len(agent.pods.running) for agent in self.agents.values())
        self.metrics.cycle_seconds.observe(seconds)
        self.metrics.pods.set(running)
        self.metrics.reports.inc(reports)
        sentence = f"{len(self.agents)} nodes, {running} pods run, best effort suppressed on {suppressed}"
        log = self.logger.info if sentence != self._sentence else self.logger.debug
        self._sentence = sentence
        log("cycle", sentence=sentence, reports=reports, outbox=len(self.facts.outbox), seconds=round(seconds, 3))

    def _is_long(self) -> bool:
        return _HOST.monotonic() - self._stretch >= LONGEST_STRETCH_SECONDS

    async def _breathe(self) -> None:
        """Yield to other tasks if this cycle has run for long, and start pods that were pushed meanwhile."""
        if self._is_long():
            await asyncio.sleep(0)
            if self.changed:
                self.take_changes()
            self._stretch = _HOST.monotonic()

    async def _something_happens(self, times: CycleTimes) -> None:
        """Wait for the time of the next cycle, a changed desired state, or a rise of the load.

        Looks are made by a timer, because to wake this task costs more than a look.
        """
        loop = asyncio.get_running_loop()

        def tick() -> None:
            nonlocal timer
            timer = loop.call_later(self.cycle_seconds, self.wakeup.set)  # if a look fails, the next cycle runs
            now = _HOST.monotonic()
            if times.step(now) is Step.LOOK:
                self._risen = self.nodes.risen()
                times.done(Step.LOOK, now)
            timer.cancel()
            if self._risen or (left := times.seconds_left(now)) <= 0:
                self.wakeup.set()
            else:
                timer = loop.call_later(left + TIMER_SECONDS, tick)

        timer = loop.call_later(max(times.seconds_left(_HOST.monotonic()), 0) + TIMER_SECONDS, tick)
        try:
            await self.wakeup.wait()
        finally:
            timer.cancel()
            self.wakeup.clear()
