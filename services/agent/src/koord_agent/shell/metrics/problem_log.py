"""Log and count problems of agents."""

from dataclasses import dataclass, field

from koordcore.service.telemetry.logging import Logger

from koord_agent.shell.metrics.agent_metrics import AgentMetrics


@dataclass(frozen=True, kw_only=True, eq=False)
class ProblemLog:
    """Logs and counts the problems of the nodes of one process. A problem that lasts is logged once."""

    logger: Logger
    metrics: AgentMetrics
    _last: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def tell(self, node: str, problems: tuple[str, ...]) -> None:
        """Log and count the problems of a node's cycle that its previous cycle did not have."""
        last = self._last.get(node, ())
        if problems == last:
            return
        for problem in problems:
            if problem not in last:
                self.metrics.problems.inc()
                self.logger.warning("node_problem", node=node, problem=problem)
        self._last[node] = problems
