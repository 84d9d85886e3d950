"""The result of one cycle of a node's agent."""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from koordcore.events.envelope import Event

from koord_agent.domain.qos.suppress.cpu_suppress import Decision
from koord_agent.shell.host.executor import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleResult:
    """The result of one cycle of a node's agent.

    Attributes:
        facts: Facts to append to the aggregate of the node, in order.
        sentence: One line for the operator.
        problems: Problems of the cycle, one sentence each.
        decision: Decision of CPU suppression. None means no decision was made.
        outcomes: Outcome for each planned value.
        plans: (strategy, result) -> number of plans; results are applied, expired, overridden and conflict.
    """

    facts: tuple[Event, ...]
    sentence: str
    problems: tuple[str, ...]
    decision: Decision | None
    outcomes: tuple[Outcome, ...]
    plans: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])


def nothing_done(sentence: str, facts: tuple[Event, ...] = (), problems: tuple[str, ...] = ()) -> CycleResult:
    """Return the result of a cycle that measured and wrote nothing, with a sentence about the reason."""
    return CycleResult(facts=facts, sentence=sentence, problems=problems, decision=None, outcomes=())


def failure(what: str, error: Exception) -> str:
    """Return a sentence about an error that nobody expected, with `file:line` of the code that raised it.

    Args:
        what: What failed, and what that means.
        error: The error.
    """
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{what}: {type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
