"""What one round of a node's agent came to."""

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from koordcore.events.envelope import Event

from koord_agent.domain.qos.suppress.cpu_suppress import Decision
from koord_agent.shell.host.executor import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """What one round of an agent came to.

    facts       to append to the node's aggregate, in order
    sentence    one line for the operator
    problems    what could not be done, one line each
    plans       of strategies: plug-in and result (applied, expired, overridden, conflict) -> number
    """

    facts: tuple[Event, ...]
    sentence: str
    problems: tuple[str, ...]
    decision: Decision | None
    outcomes: tuple[Outcome, ...]
    plans: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])


def nothing_done(sentence: str, facts: tuple[Event, ...] = (), problems: tuple[str, ...] = ()) -> Tick:
    """A round that neither looked nor wrote."""
    return Tick(facts=facts, sentence=sentence, problems=problems, decision=None, outcomes=())


def place_of(error: Exception) -> str:
    """File and line that an error came from."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"
