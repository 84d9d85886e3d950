"""Handle errors that end a session: log them, show them in readiness, and wait before the next session."""

from typing import Final

from koordcore.bus.client.connection import NoAnswer, NotConnected
from koordcore.ports.eventlog import HistoryGone
from koordcore.retry import Backoff

from koord_projector.shell.postgres.database import WRITE_ERRORS
from koord_projector.shell.postgres.writer import Moved
from koord_projector.shell.projecting.context import ProjectorContext
from koord_projector.shell.projecting.feed import RebuildWanted
from koord_projector.shell.projecting.fold_process import FoldEnded
from koord_projector.shell.projecting.refusals import FactsRefused
from koord_projector.shell.projecting.session import LogChanged

LOG_ERRORS: Final = (NoAnswer, NotConnected, TimeoutError)
"""Errors while the log is unavailable."""
SESSION_ERRORS: Final = (
    RebuildWanted, FoldEnded, FactsRefused, Moved, HistoryGone, LogChanged, *LOG_ERRORS, *WRITE_ERRORS,
)  # fmt: skip
LONGEST_PAUSE: Final = 5.0
"""Largest nominal delay between two sessions in real seconds."""


def session_backoff() -> Backoff:
    """Return the delays between two database sessions if sessions fail repeatedly."""
    return Backoff(0.2, LONGEST_PAUSE)


async def recover(context: ProjectorContext, error: Exception, backoff: Backoff) -> None:
    """Log the error that ended a session, and wait until the next session may begin.

    A requested rebuild and a moved position are not waited for. If the log is away, wait for the next delay of the
    back-off. If Postgres is away, also report the fold as not ready. If facts are missing in the log, report it as not
    ready and wait five seconds, or until an operator requests a rebuild.
    """
    log, progress = context.logger, context.progress
    match error:
        case RebuildWanted():
            log.info("rebuild_begins")
        case FactsRefused():
            log.error("facts_refused", first=error.first, last=error.last, reason=error.reason)
            await backoff.wait()
        case Moved():
            log.warning("position_moved", reason=str(error))
        case FoldEnded():
            progress.halt(f"rebuilding again: {error}")
            log.warning("fold_ended", reason=str(error))
            await backoff.wait()
        case HistoryGone() | LogChanged():
            progress.halt(f"{error}; POST /admin/rebuild folds what the log still holds")
            log.error("history_gone", reason=str(error))
            await progress.rebuild_wanted_within(LONGEST_PAUSE)
        case NoAnswer() | NotConnected() | TimeoutError():
            log.warning("log_away", error=first_line(error))
            await backoff.wait()
        case _:
            progress.halt(f"Postgres is away: {first_line(error)}")
            log.warning("postgres_away", error=first_line(error))
            await backoff.wait()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text. Database drivers add details in further lines."""
    return (str(error).splitlines() or [type(error).__name__])[0]
