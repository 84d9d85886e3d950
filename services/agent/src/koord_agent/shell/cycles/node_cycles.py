"""Run the cycles of all nodes of the process, and publish their first and last facts."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from koordcore.events.nodestate import AgentStarted
from koordcore.service.telemetry.logging import Logger

from koord_agent.domain.failure import failure
from koord_agent.shell.bus.fact_publisher import FactPublisher
from koord_agent.shell.bus.outbox import Fact
from koord_agent.shell.metrics.agent_metrics import AgentMetrics
from koord_agent.shell.metrics.problem_log import ProblemLog
from koord_agent.shell.node.cycle_result import CycleResult, nothing_done
from koord_agent.shell.node.node_agent import CYCLE_FAILED, NodeAgent
from koord_agent.shell.node.threads import finished_in_thread


@dataclass(slots=True, kw_only=True, eq=False)
class NodeCycles:
    """The cycles of the nodes of one process.

    Attributes:
        agents: Name of a node -> agent of the node.
        is_simulated: Whether the nodes are simulated. If not, each cycle runs in a thread, because it reads files of
            this machine.
        facts: Publishes the facts of the agents.
        problems: Logs problems of the agents.
        metrics: Metrics of the service.
        logger: Logger of the service.
    """

    agents: Mapping[str, NodeAgent]
    is_simulated: bool
    facts: FactPublisher
    problems: ProblemLog
    metrics: AgentMetrics
    logger: Logger

    def begin(self, version: str, now: float) -> None:
        """Publish the fact `AgentStarted` for each node.

        Args:
            version: Version of the agent.
            now: Unix seconds.
        """
        event = AgentStarted(host="simulated" if self.is_simulated else "linux", version=version)
        self.facts.publish([fact for node in self.agents for fact in self.facts.facts(node, (event,))])
        for node in self.agents:
            self.metrics.started(node, now)

    async def run(self, now_ms: int, *, is_long: Callable[[], bool], breathe: Callable[[], Awaitable[None]]) -> int:
        """Run the cycle of each node, and publish what was done.

        Args:
            now_ms: Time in milliseconds.
            is_long: Returns whether other tasks have waited for long.
            breathe: Yields to other tasks if they have waited for long, and starts pods that were pushed.

        Returns:
            Number of nodes with suppressed best-effort pods.
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
        """Publish the last facts of all nodes when the process stops, such as the kernel values that stay in force.

        Then close the hardware counters and files of each node. An error is logged; it keeps neither a node from being
        closed nor the others from their end.

        Args:
            now_ms: Time in milliseconds.
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
            trouble = agent.close(now_ms)
        except Exception as error:  # noqa: BLE001 - as for the farewell
            trouble = failure("it is not closed", error)
        self.problems.tell(node, () if trouble is None else (trouble,), of="close")

    async def _run_node(self, agent: NodeAgent, now_ms: int, facts: list[Fact]) -> CycleResult:
        """Run the cycle of one node and return its result. If the task is cancelled, add the facts to `facts`."""
        if self.is_simulated:
            return agent.run_cycle(now_ms)
        ended: list[CycleResult] = []

        def cycle() -> CycleResult:
            ended.append(agent.run_cycle(now_ms))
            return ended[0]

        try:
            done = await finished_in_thread(cycle)
        except asyncio.CancelledError:
            # What the cycle did is in force: a pod that it evicted would be gone without a reason.
            facts.extend(fact for done in ended for fact in self.facts.facts(agent.node, done.facts))
            raise
        except RuntimeError as error:  # the machine has no room for a thread; the next cycle tries again
            problem = failure(CYCLE_FAILED, error)
            return nothing_done(problem, problems=(problem,))
        self.logger.debug("node_cycle", node=agent.node, sentence=done.sentence)
        return done
