"""Report the problems of a node that last, such as a topology that cannot be read: for `koord explain node`.

Each problem is logged and counted at once (`ProblemLog`). Only one that is the same for half a minute becomes a part of
a fact, so that what comes and goes, or has other numbers in each cycle, does not fill the log.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from koordcore.events.nodestate import NodeProblemsReported

LASTS_MS: Final = 30_000
EVERY_MS: Final = 60_000
MOST_PROBLEMS: Final = 20
LONGEST: Final = 400


@dataclass(slots=True)
class LastingProblems:
    """What was reported since the start of the agent. A reader ignores what it reported before."""

    _since_ms: dict[str, int] = field(default_factory=dict[str, int])
    _said: list[str] = field(default_factory=list[str])
    _said_ms: int | None = None

    def take(self, problems: Iterable[str], now_ms: int) -> tuple[NodeProblemsReported, ...]:
        """Return the fact, if the lasting ones of the present problems changed; at most one a minute."""
        present = dict.fromkeys(problems)
        if not present and not self._said:
            self._since_ms.clear()
            return ()
        self._since_ms = {text: min(self._since_ms.get(text, now_ms), now_ms) for text in present}
        lasting = sorted(text[:LONGEST] for text, since in self._since_ms.items() if now_ms - since >= LASTS_MS)
        lasting = lasting[:MOST_PROBLEMS]
        is_soon = self._said_ms is not None and 0 <= now_ms - self._said_ms < EVERY_MS
        if lasting == self._said or is_soon:
            return ()
        self._said, self._said_ms = lasting, now_ms
        return (NodeProblemsReported(problems=lasting),)
