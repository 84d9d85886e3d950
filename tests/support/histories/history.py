"""Histories of a small cluster for tests: valid sequences of events, as a log would hold them.

`history(actions)` is deterministic in its actions, so hypothesis shrinks a failing history to its essence.
"""

from collections.abc import Iterable, Sequence

from koordcore.events.envelope import StoredEvent
from support.histories.actions import ACTIONS, Action
from support.histories.agents import step_agents
from support.histories.descheduling import step_descheduling
from support.histories.gateway import step_gateway
from support.histories.management import step_management
from support.histories.mirror import step_mirror
from support.histories.pods import step_pods
from support.histories.recording import Recorder
from support.histories.scheduling import step_scheduling

STEPS = (
    step_pods,
    step_scheduling,
    step_descheduling,
    step_management,
    step_agents,
    step_mirror,
    step_gateway,
)
"""Each writes the steps that it knows; a step is known to one of them."""


def history(steps: Iterable[Action]) -> list[StoredEvent]:
    """The events of a sequence of actions, sequences from 1 without gaps."""
    log = Recorder()
    for step in steps:
        for write_facts in STEPS:
            write_facts(log, step)
    return log.events


def every_kind_once() -> Sequence[Action]:
    """Actions that give every event type of the facts stream at least once, in a plausible order."""
    return [
        *(Action("add-node", number, number) for number in range(3)),
        *(Action("add-pod", number, number % 4) for number in range(6)),
        *(Action("place", number, number) for number in range(6)),
        *(Action(what, 1, 1) for what in ACTIONS if what not in ("add-pod", "place", "add-node", "delete-pod")),
        Action("reservation-end", 4, 0),
        Action("delete-pod", 2, 0),
        Action("delete-pod", 5, 0),
        Action("place", 1, 2),
        Action("reallocate", 1, 1),
    ]
