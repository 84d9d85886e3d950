"""When a change that the manager refused is tried again: after pauses that double.

Without pauses, a change that is refused for a lasting reason, such as a Reservation without owners, would be sent and
logged every few seconds.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from koordcore.requests.objects import ChangeOutcome, ChangeResult

from koord_descheduler.domain.migration.world import RETRY_SECONDS

FIRST_SECONDS: Final = RETRY_SECONDS
LONGEST_SECONDS: Final = 60.0


class _Refused(NamedTuple):
    pause: float
    until: float


@dataclass(slots=True)
class Refusals:
    """The refused changes of one controller. Only its task uses it."""

    _known: dict[Hashable, _Refused] = field(default_factory=dict[Hashable, _Refused])

    def waits(self, change: Hashable, now: float) -> bool:
        """Return whether a change was refused and is not to be tried yet. A clock that is set back ends the pause.

        Args:
            change: What identifies the change.
            now: Unix seconds.
        """
        known = self._known.get(change)
        return known is not None and known.until - known.pause <= now < known.until

    def pause_after(self, change: Hashable, outcomes: Iterable[ChangeOutcome], now: float) -> float | None:
        """Record the outcomes of a change. Return the seconds after which to try it again; None if it was accepted.

        Args:
            change: What identifies the change.
            outcomes: Outcomes of its parts. It is refused if one of them is.
            now: Unix seconds.
        """
        known = self._known.pop(change, None)
        if all(outcome.result is not ChangeResult.REFUSED for outcome in outcomes):
            return None
        pause = FIRST_SECONDS if known is None else min(2 * known.pause, LONGEST_SECONDS)
        self._known[change] = _Refused(pause, now + pause)
        return pause

    def forget(self, change: Hashable) -> None:
        """Forget the refusals of a change, because nobody wants it any more."""
        self._known.pop(change, None)

    def forget_old(self, now: float) -> None:
        """Forget changes that were not tried again long after their pause, because nobody wants them any more.

        Args:
            now: Unix seconds.
        """
        self._known = {change: each for change, each in self._known.items() if now - each.until < LONGEST_SECONDS}

    def clear(self) -> None:
        """Forget all changes."""
        self._known.clear()
