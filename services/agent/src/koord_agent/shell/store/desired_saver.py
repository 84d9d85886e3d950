"""Save changed desired states to the local store, some in each cycle."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from koordcore.ports.desired import DesiredNode
from koordcore.service.outbox import NotStored
from koordcore.service.telemetry.logging import Logger

from koord_agent.shell.store.local_store import LocalStore

SAVED_PER_CYCLE: Final = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class DesiredSaver:
    """Saves the desired states of one process.

    Attributes:
        store: Local store to save to.
        unsaved: Returns up to the given number of states that changed since the last call.
        not_saved: Called with the states that the disk refused.
        logger: Receives the first error of the disk after a success; further errors in a row are not logged.
    """

    store: LocalStore
    unsaved: Callable[[int], Sequence[DesiredNode]]
    not_saved: Callable[[Iterable[DesiredNode]], None]
    logger: Logger
    _trouble: list[str] = field(default_factory=lambda: [""])

    def save(self, now_ms: int) -> None:
        """Store some of the changed states on disk. If it fails, log the error; they are stored later."""
        values = self.unsaved(SAVED_PER_CYCLE)
        if not values:
            return
        try:
            self.store.save_desired(values, now_ms)
        except NotStored as error:
            self.not_saved(values)
            if not self._trouble[0]:
                self.logger.error("desired_not_stored", reason=str(error))
            self._trouble[0] = str(error)
        else:
            self._trouble[0] = ""
