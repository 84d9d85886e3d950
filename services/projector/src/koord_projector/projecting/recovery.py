"""Handle errors that end a session: log them, show them in readiness, and wait before the next session."""

from typing import Final

from koordcore.bus.client.connection import NoAnswer, NotConnected
from koordcore.ports import eventlog
from koordcore.ports.eventlog import LOG_FAULTS, HistoryGone
from koordcore.retry import Backoff
from koordcore.service.telemetry.logging import Logger

from koord_projector.context import ProjectorContext
from koord_projector.projecting.feed import LOG_ERRORS, RebuildWanted
from koord_projector.projecting.fold_process import FoldEnded
from koord_projector.projecting.session import FactsRefused, LogChanged, TablesTaken
from koord_projector.store.database import WRITE_ERRORS, first_line
from koord_projector.store.positions import Moved

SESSION_ERRORS: Final = (
    RebuildWanted, FoldEnded, FactsRefused, Moved, TablesTaken, HistoryGone, LogChanged, *LOG_FAULTS, *LOG_ERRORS,
    *WRITE_ERRORS,
)  # fmt: skip
FIRST_PAUSE: Final = 0.2
"""Nominal delay in real seconds after the first of several sessions that fail."""
LONGEST_PAUSE: Final = 5.0
"""Largest nominal delay between two sessions in real seconds."""
LAST_COPY: Final = (
    "the tables may be the last copy of these facts: restore the log (docs/runbook.md, 'The log went back')."
    ' To give them up: POST /admin/rebuild with the body {"discard": true}'
)
SETTLED_COMMITS: Final = 100
"""Number of transactions after which a moved position is taken for new, and not for one more of a series."""


def session_backoff() -> Backoff:
    return Backoff(FIRST_PAUSE, LONGEST_PAUSE)


class Moves:
    """Lines of the log and pauses after a position that another projector has moved.

    Two projectors on one database move it for each other again and again, with commits of both between. So only the
    first time is logged, and the pauses become longer, until `SETTLED_COMMITS` transactions have succeeded in a row.
    """

    def __init__(self) -> None:
        self._backoff = session_backoff()
        self._commits = SETTLED_COMMITS
        """Number of transactions since the position moved last."""

    def committed(self) -> None:
        self._commits += 1
        if self._commits == SETTLED_COMMITS:
            self._backoff.reset()

    async def after(self, moved: Exception, log: Logger, event: str, **fields: object) -> None:
        """Log a moved position as an event with fields, and wait until the next session may begin."""
        is_first, self._commits = self._commits >= SETTLED_COMMITS, 0
        (log.warning if is_first else log.debug)(event, **fields, reason=str(moved))
        await self._backoff.wait()


class Recovery:
    """What follows the errors that end sessions: lines of the log, readiness, and pauses."""

    def __init__(self, context: ProjectorContext) -> None:
        self._context = context
        self._failures = session_backoff()
        self._moves = Moves()
        self._gone = ""
        """Why facts are missing, as it was logged last; "" after a commit."""

    def opened(self) -> None:
        """A session has loaded the tables. If all facts are written already, this is a success."""
        if self._context.progress.position >= self._context.progress.head:
            self._failures.reset()

    def committed(self) -> None:
        self._failures.reset()
        self._moves.committed()
        self._gone = ""

    async def after(self, error: Exception) -> None:
        """Log the error that ended a session, and wait until the next session may begin.

        A requested rebuild is not waited for. If the log is away, wait for the next delay of the back-off. If Postgres
        is away, also report the fold as not ready. If the position moves again and again, log it once. If another
        version folds into the tables, or facts are missing in the log, report the fold as not ready and wait five
        seconds, or until an operator requests a rebuild; the same trouble is logged once.
        """
        log, progress = self._context.logger, self._context.progress
        match error:
            case RebuildWanted():
                log.info("rebuild_begins")
            case FactsRefused():
                log.error("facts_refused", first=error.first, last=error.last, reason=error.reason)
                await self._failures.wait()
            case Moved():
                await self._moves.after(error, log, "position_moved")
            case FoldEnded():
                progress.halt(f"rebuilding again: {error}")
                log.warning("fold_ended", reason=str(error))
                await self._failures.wait()
            case TablesTaken():
                trouble = f"stands by: {error}"
                if progress.trouble != trouble:
                    log.warning("stands_by", reason=str(error))
                progress.halt(trouble)
                await progress.rebuild_wanted_within(LONGEST_PAUSE)
            case HistoryGone() | LogChanged() | eventlog.LogDamaged() | eventlog.LogChanged():
                trouble = f"{error}; {LAST_COPY}"
                progress.keeps_facts = True
                if self._gone != trouble:
                    self._gone = trouble
                    log.error("history_gone", reason=str(error))
                progress.halt(trouble)
                await progress.rebuild_wanted_within(LONGEST_PAUSE)
            case NoAnswer() | NotConnected() | TimeoutError():
                log.warning("log_away", error=first_line(error))
                await self._failures.wait()
            case _:
                progress.halt(f"Postgres is away: {first_line(error)}")
                log.warning("postgres_away", error=first_line(error))
                await self._failures.wait()
