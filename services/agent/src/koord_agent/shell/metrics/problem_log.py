"""Log and count problems of agents."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from koordcore.service.telemetry.logging import Logger

from koord_agent.shell.metrics.agent_metrics import AgentMetrics


@dataclass(frozen=True, kw_only=True, eq=False)
class ProblemLog:
    """Logs and counts the problems of the nodes of one process. A problem that lasts is logged once.

    Each source of a node, such as its cycle, tells its own problems. So a source neither ends nor repeats the problems
    of another one.
    """

    logger: Logger
    metrics: AgentMetrics
    _last: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict[tuple[str, str], frozenset[str]])

    def tell(self, node: str, problems: Iterable[str], *, of: str) -> None:
        """Log and count the problems that a source did not have when it told its problems last.

        A problem that a source no longer tells has healed. If it comes back, it is logged again.

        Args:
            node: Name of the node.
            problems: All present problems of the source, one sentence each; empty if it has none.
            of: Source of the problems: `pods`, `cycle`, `report`, `farewell` or `close`.
        """
        present = dict.fromkeys(problems)
        last = self._last.pop((node, of), frozenset[str]())
        if present:
            self._last[node, of] = frozenset(present)
        for problem in present:
            if problem not in last:
                self.metrics.problems.inc()
                self.logger.warning("node_problem", node=node, source=of, problem=problem)
