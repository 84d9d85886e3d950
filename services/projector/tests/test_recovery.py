"""What follows an error that ends a session of the projector."""

from types import SimpleNamespace
from typing import Any

from koord_projector.context import Progress
from koord_projector.projecting.recovery import Recovery
from koordcore.ports.eventlog import HistoryGone
from koordcore.service.health import Condition
from koordcore.service.telemetry.logging import logger
from structlog.testing import capture_logs


async def test_missing_facts_are_logged_once_until_facts_are_committed_again() -> None:
    progress = Progress(ready=Condition(""))
    progress.rebuild_wanted.set()  # so that the pauses end at once
    context: Any = SimpleNamespace(progress=progress, logger=logger("projector-recovery"))
    recovery = Recovery(context)
    with capture_logs() as lines:
        for _ in range(3):
            progress.going_on()  # each session begins with a fold that is ready
            await recovery.after(HistoryGone(1, 9))
        logged = len(lines)
        assert "POST /admin/rebuild" in progress.trouble
        recovery.committed()
        await recovery.after(HistoryGone(1, 9))
    assert logged == 1
    assert [line["event"] for line in lines] == ["history_gone"] * 2
