"""The folds that look at a damaged log, and what each of them says about it."""

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast

from koordcore.bus.factory import Bus
from koordcore.bus.folds.foldable import FoldSource
from koordcore.bus.folds.runner import FoldRunner
from koordcore.bus.read.feed import FollowerSettings
from koordcore.service.clock import SystemClock
from koordcore.state import ClusterState
from koordcore.state.cluster import schema_fingerprint
from support.faults.facts import Truth

FOLD: Final = "manager"
SNAPSHOT_EVENTS: Final = 60
PATIENCE_SECONDS: Final = 25.0
"""Time in which a fold must be ready, or say why it is not."""
SETTLING_SECONDS: Final = 3.0
"""Time that a ready fold gets to notice what is wrong, beyond the time of its own checks."""
FOLLOWER: Final = FollowerSettings(silence_seconds=1.2, went_back_seconds=2.0, idle_seconds=1.0)
SOURCE: Final = FoldSource(ClusterState, ClusterState.restore, schema_fingerprint())


class Outcome(StrEnum):
    """How a fault ended."""

    EQUAL = "equal"  # every fold has the state of the acknowledged facts
    STOPPED = "stopped"  # a sentence names what is lost and what to do
    UNAWARE = "unaware"  # the fold from zero shows a log that lost its tail; the others have stopped
    SILENT = "silent"  # not ready, without a reason
    WORDLESS = "wordless"  # stopped with a sentence that does not say what is lost, or what to do
    WRONG = "wrong"  # ready with another state than that of the acknowledged facts


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one fold says, or what one tool says."""

    who: str
    outcome: Outcome
    sentence: str

    def __str__(self) -> str:
        return f"{self.who}: {self.outcome}: {self.sentence}"


def stopped(who: str, sentence: str) -> Verdict:
    """The verdict of whoever has stopped with a sentence. It must name what is lost, and a remedy."""
    says_what = any(letter.isdigit() for letter in sentence) or "stream" in sentence
    says_remedy = any(word in sentence for word in ("koord ", "KOORD_ARCHIVE", "restore", "docs/runbook.md"))
    outcome = Outcome.STOPPED if says_what and says_remedy else Outcome.WORDLESS
    return Verdict(who, outcome, sentence)


class Fold:
    """A fold of the log as a service runs it, in a task of its own.

    Args:
        who: Name of this fold in verdicts.
        snapshots: Whether it begins with a snapshot.
        saves_every: Number of facts after which it saves a snapshot. None: it saves none.
    """

    def __init__(self, who: str, bus: Bus, *, snapshots: bool = True, saves_every: int | None = None) -> None:
        self.who = who
        self._bus = bus
        self.runner = FoldRunner(
            FOLD,
            bus.events,
            SOURCE,
            SystemClock(),
            snapshots=bus.snapshots if snapshots else None,
            snapshot_events=saves_every or 1_000_000,
        )
        self._task = asyncio.create_task(self.runner.run())

    @property
    def sentence(self) -> str | None:
        """Why it has stopped; None while it runs."""
        if self._task.done():
            return "; ".join(_leaves(self._task.exception()))
        return None if self.runner.halted is None else str(self.runner.halted)

    @property
    def is_ready(self) -> bool:
        """Whether a service would answer that it is ready."""
        return not self._task.done() and self.runner.trouble() is None

    async def reaches(self, position: int, seconds: float) -> bool:
        """Wait until it is ready at a position. Return False if it stops, or the time is up."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.sentence is not None:
                return False
            if self.is_ready and self.runner.position == position:
                return True
            await asyncio.sleep(0.02)
        return False

    async def judge(self, truth: Truth, head: int | None) -> Verdict:
        """What it says once it has settled.

        Args:
            head: Last position of the log; None: the log does not say.
        """
        if head is None or not await self.reaches(head, PATIENCE_SECONDS):
            sentence = self.sentence
            if sentence is None and head is None:
                await asyncio.wait({self._task}, timeout=SETTLING_SECONDS)
                sentence = self.sentence
            if sentence is not None:
                return stopped(self.who, sentence)
            if not self.is_ready:
                return Verdict(self.who, Outcome.SILENT, f"{self.runner.trouble()}, at {self.runner.position}")
            return Verdict(self.who, Outcome.WRONG, f"ready at {self.runner.position}, the log ends at {head}")
        position, found = self.runner.position, self.runner.state.hash()
        if found == truth.hash_at(position):
            if position == truth.last and not truth.rewritten:
                return Verdict(self.who, Outcome.EQUAL, f"ready at {position}")
            return Verdict(
                self.who,
                Outcome.UNAWARE,
                f"ready at {position}, {truth.last} facts are acknowledged, {len(truth.rewritten)} of them lost",
            )
        return Verdict(self.who, Outcome.WRONG, f"ready at {position} with another state")

    async def end(self) -> None:
        """Stop it."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def together(verdicts: list[Verdict], *, unaware: Collection[str]) -> Outcome:
    """The outcome of all folds and tools of one moment.

    Args:
        unaware: Names of those that may show a log that lost its tail, if all folds that know more have stopped: they
            have nothing to compare the log with.
    """
    knowing = [verdict.outcome for verdict in verdicts if verdict.who not in unaware]
    if any(v.outcome is Outcome.UNAWARE for v in verdicts) and not all(found is Outcome.STOPPED for found in knowing):
        return Outcome.WRONG
    for worst in (Outcome.WRONG, Outcome.SILENT, Outcome.WORDLESS, Outcome.STOPPED):
        if any(verdict.outcome is worst for verdict in verdicts):
            return worst
    return Outcome.EQUAL


def _leaves(error: BaseException | None) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return [text for each in inner for text in _leaves(each)]
    return [f"{type(error).__name__}: {error}"]
