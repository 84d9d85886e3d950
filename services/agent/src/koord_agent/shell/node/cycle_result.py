"""The result of one cycle of a node's agent."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from koordcore.events.envelope import Event

from koord_agent.domain.qos.suppress.cpu_suppress import Decision
from koord_agent.shell.host.executor import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleResult:
    """The result of one cycle of a node's agent.

    Attributes:
        facts: Facts to append to the aggregate of the node, in order.
        sentence: One line for the operator.
        problems: Present problems of measuring and protecting the node, one sentence each.
        decision: Decision of CPU suppression. None means no decision was made.
        outcomes: Outcome for each planned value.
        pod_problems: Present problems of starting and ending pods, one sentence each.
        plans: (strategy, result) -> number of plans; results are applied, expired, overridden and conflict.
    """

    facts: tuple[Event, ...]
    sentence: str
    problems: tuple[str, ...]
    decision: Decision | None
    outcomes: tuple[Outcome, ...]
    pod_problems: tuple[str, ...] = ()
    plans: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])


def nothing_done(
    sentence: str,
    facts: tuple[Event, ...] = (),
    problems: tuple[str, ...] = (),
    pod_problems: tuple[str, ...] = (),
) -> CycleResult:
    """Return the result of a cycle that measured and wrote nothing, with a sentence about the reason."""
    return CycleResult(
        facts=facts, sentence=sentence, problems=problems, decision=None, outcomes=(), pod_problems=pod_problems
    )
