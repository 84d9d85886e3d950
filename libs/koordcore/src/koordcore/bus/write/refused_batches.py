"""Tell that the server refuses atomic batches because too many are open, of this or of another writer."""

import asyncio
import logging
from typing import Final

from koordcore.bus.metrics import BusMetrics

log = logging.getLogger("koordcore.bus")

# Errors of the server after which a batch is sent again: its beginning was dropped, the stream has too many open
# batches, or all streams have.
BATCH_REFUSED: Final = frozenset((10176, 10210, 10211))
REASON: Final = "atomic batches are refused because too many others are open, or the connection was lost meanwhile"
TELL_SECONDS: Final = 10.0  # Time between two lines, and about the time after which the server drops an open batch


class RefusedBatches:
    def __init__(self, metrics: BusMetrics) -> None:
        self._metrics = metrics
        self._untold = 0
        self._told_at = float("-inf")

    def note(self, answer: str) -> str:
        """Count one refusal, log a line at most every `TELL_SECONDS`, and return the reason. `answer`: error of the
        server, with its code.
        """
        self._metrics.batch_refused()
        self._untold += 1
        now = asyncio.get_running_loop().time()
        if now - self._told_at >= TELL_SECONDS:
            log.warning("batches_refused count=%d reason=%s answer=%s", self._untold, REASON, answer)
            self._untold, self._told_at = 0, now
        return f"{REASON} ({answer})"
