"""What an operator reads about the problems of a node: each source tells its own, each problem is told once."""

from koord_agent.shell.metrics.agent_metrics import AgentMetrics, ProblemLog
from koordcore.service.telemetry.logging import logger
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs


def told(*calls: tuple[str, str, tuple[str, ...]]) -> list[tuple[str, str, str]]:
    """Node, source and problem of each line that these calls wrote; the metric counts as many."""
    registry = CollectorRegistry()
    problems = ProblemLog(logger=logger("t"), metrics=AgentMetrics(registry, 2))
    with capture_logs() as lines:
        for node, source, sentences in calls:
            problems.tell(node, sentences, of=source)
    assert registry.get_sample_value("koord_agent_problems_total") == len(lines)
    return [(line["node"], line["source"], line["problem"]) for line in lines]


def test_a_problem_that_lasts_is_told_once_and_again_after_it_had_healed() -> None:
    lasting, new = ("n", "cycle", ("a",)), ("n", "cycle", ("b", "a", "b"))
    assert told(lasting, lasting, new, new) == [("n", "cycle", "a"), ("n", "cycle", "b")]
    assert told(lasting, ("n", "cycle", ()), lasting) == [("n", "cycle", "a"), ("n", "cycle", "a")]


def test_sources_and_nodes_neither_end_nor_hide_the_problems_of_each_other() -> None:
    cycle, pods, report, other = (
        ("n", "cycle", ("a",)),
        ("n", "pods", ()),
        ("n", "report", ("a",)),
        ("m", "cycle", ("a",)),
    )
    assert told(*[cycle, pods, report, other] * 3) == [("n", "cycle", "a"), ("n", "report", "a"), ("m", "cycle", "a")]
