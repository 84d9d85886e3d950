"""A kill of the descheduler at one of its effects: an append to the log, or a change of objects.

The effect never returns. It is done or not, and so is none after it. The test then stops the service, and starts it
again on the same log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from koordcore.events.envelope import NewEvent
from koordcore.ports.eventlog import AppendOutcome, EventLog
from koordcore.requests.objects import ChangeOutcome, ObjectChange

if TYPE_CHECKING:
    from koord_descheduler.shell.object_writer import ObjectWriter

R = TypeVar("R")


@dataclass(slots=True)
class Kill:
    """The moment of a kill.

    number      effects that return before it
    is_done     whether the effect at which the process is killed takes place
    is_reached  whether the service has come so far
    """

    number: int
    is_done: bool
    is_reached: bool = False
    effects: list[str] = field(default_factory=list[str])

    async def effect(self, name: str, effect: Callable[[], Awaitable[R]]) -> R:
        """Carry out an effect, unless the process is dead."""
        if not self.is_reached and len(self.effects) < self.number:
            self.effects.append(name)
            return await effect()
        if not self.is_reached:
            self.effects.append(name)
            if self.is_done:
                await effect()
            self.is_reached = True
        await asyncio.Event().wait()
        raise AssertionError("a dead process goes on")


class KilledLog:
    """A log whose appends end with the process; everything else is that of the log."""

    def __init__(self, log: EventLog, kill: Kill) -> None:
        self._log = log
        self._kill = kill

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, events: Sequence[NewEvent], *, deadline: float = 30.0) -> AppendOutcome:
        """Append events, unless the process is dead."""
        names = " ".join(str(event.ref) for event in events)
        return await self._kill.effect(names, lambda: self._log.append(events, deadline=deadline))


class KilledWriter:
    """A writer of objects whose changes end with the process."""

    def __init__(self, writer: "ObjectWriter", kill: Kill) -> None:
        self._writer = writer
        self._kill = kill

    async def change(self, changes: Sequence[ObjectChange]) -> list[ChangeOutcome]:
        """Change objects, unless the process is dead."""
        return await self._kill.effect("change", lambda: self._writer.change(changes))
