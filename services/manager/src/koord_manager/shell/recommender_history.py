"""Keep the models of the recommender across restarts: checkpoints, and the usage reports after them.

Source:
    manager spec, 15.6
"""

import asyncio
from collections.abc import Callable
from typing import Final

from koordcore.bus.client.connection import NoAnswer, NotConnected
from koordcore.bus.read.report_gate import ReportGate
from koordcore.ports.eventlog import ObservationLog
from koordcore.ports.snapshots import Snapshot, SnapshotStore, state_digest
from koordcore.protocol.recommendations import PLURAL
from koordcore.retry import Backoff
from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controllers.recommender.book import CHECKPOINT_FOLD, book_fingerprint
from koord_manager.domain.controllers.recommender.controller import RecommenderController
from koord_manager.shell.folding import REPORTS_AT_ONCE, learn

CHECKPOINT_SECONDS: Final = 600
_PAUSES: Final = (1.0, 30.0)
"""First and longest pause in seconds while the log does not answer."""


async def recall(
    rounds: RecommenderController,
    view: ManagerView,
    snapshots: SnapshotStore | None,
    observations: ObservationLog,
    gate: ReportGate,
    logger: Logger,
) -> None:
    """Load the recommender's newest checkpoint and learn from the reports after it.

    Call this function before reports are followed. Without a checkpoint, or with one that was learned under other
    settings, all retained reports are read. If there is no Recommendation, or all reports have expired, no reports are
    read. Invalid reports are skipped. While the log does not answer, it is asked again after 1, 2, 4 ... 30 seconds and
    one line is logged.

    Args:
        snapshots: Store of the checkpoints, or None if there is none.
    """
    rounds.loading = True
    book, backoff, is_told = rounds.book, Backoff(*_PAUSES), False
    while True:
        try:
            if snapshots is not None:
                snapshot = await snapshots.newest(CHECKPOINT_FOLD, schema_fingerprint=book_fingerprint())
                if snapshot is not None and not book.restore(b"".join(snapshot.state)):
                    logger.warning(
                        "recommender_learns_anew", reason="the settings have changed", taken_at=snapshot.taken_at
                    )
            head = await observations.head()
            break
        except codec.DecodeError as error:
            logger.warning("recommender_checkpoint_unreadable", reason=str(error))
            snapshots = None
        except (NoAnswer, NotConnected) as error:
            if not is_told:
                logger.warning("recommender_history_away", reason=str(error))
            is_told = True
            await backoff.wait()
    if book.position < head.last_seq and not head.is_empty and view.customs(PLURAL):
        async for batch in observations.follow(book.position, batch=REPORTS_AT_ONCE):
            for stored in batch:
                report = gate.read(stored)
                if report is not None:
                    learn(view, book, stored, report, logger)
            await asyncio.sleep(0)
            if batch and batch[-1].seq >= head.last_seq:
                break
    book.position = max(book.position, head.last_seq)
    rounds.loading = False


async def keep_checkpoints(
    rounds: RecommenderController,
    snapshots: SnapshotStore,
    leads: Callable[[], bool],
    now: Callable[[], str],
    logger: Logger,
    *,
    code_version: str,
) -> None:
    """Save the recommender's models every ten minutes while this instance leads, until cancelled.

    If a checkpoint cannot be saved, the error is logged. Only the next restart takes longer then.

    Args:
        now: Returns the time, RFC 3339.
        code_version: Version of this program, to store with the checkpoint.
    """
    while True:
        await asyncio.sleep(CHECKPOINT_SECONDS)
        if not (leads() and rounds.book.models):
            continue
        try:
            await save_checkpoint(rounds, snapshots, now(), logger, code_version=code_version)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            logger.error("recommender_checkpoint_not_saved", reason=reason, exc_info=error)


async def save_checkpoint(
    rounds: RecommenderController, snapshots: SnapshotStore, taken_at: str, logger: Logger, *, code_version: str
) -> None:
    """Save the recommender's present models as a checkpoint. `taken_at`: RFC 3339."""
    state = (rounds.book.checkpoint(),)
    snapshot = Snapshot(
        fold=CHECKPOINT_FOLD,
        seq=rounds.book.position,
        code_version=code_version,
        schema_fingerprint=book_fingerprint(),
        taken_at=taken_at,
        state=state,
        digest=state_digest(state),
    )
    try:
        await snapshots.save(snapshot)
    except (NoAnswer, NotConnected) as error:
        logger.warning("recommender_checkpoint_not_saved", reason=str(error))
