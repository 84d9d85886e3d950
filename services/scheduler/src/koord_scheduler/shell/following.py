"""The follower: brings the log's events to the state, in order, and says how far it is.

It halts before an event that cannot be read, until an operator has recorded that this fold passes over it
(`EventSkipped` on `fold.scheduler`); meanwhile the scheduler does not decide.

source    event-bus spec, 3.2, 8
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from koordcore.events import CATALOGUE
from koordcore.events.control import EventSkipped
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.eventlog import EventLog
from koordcore.service.clock import host_unix_nanos
from koordcore.service.health import Condition
from koordcore.service.logging import Logger
from koordcore.service.metrics import BusMetrics

from koord_scheduler.domain.state import KINDS, SchedulerState

FOLD: Final = "scheduler"
BATCH: Final = 500
MOST_LAG_SECONDS: Final = 5.0
"""Older events than this in a full batch: the scheduler sees the past and does not decide (event-bus spec, 8)."""
_LOOK_FOR_SKIP_SECONDS: Final = 2.0


class Following:
    """Folds the log into the state until it is cancelled.

    changed        called after every batch
    has_history    set once the whole log has been folded for the first time
    """

    def __init__(
        self,
        state: SchedulerState,
        log: EventLog,
        *,
        ready: Condition,
        metrics: BusMetrics,
        logger: Logger,
        changed: Callable[[], None],
    ) -> None:
        self._state = state
        self._log = log
        self._ready = ready
        self._metrics = metrics
        self._logger = logger
        self._changed = changed
        self._skipped: set[int] = set()
        self.is_lagging = False
        self.is_halted = False
        self.has_history = asyncio.Event()

    async def run(self) -> None:
        """Fold the whole history, then what comes. Raises HistoryGone when the log has forgotten what is needed."""
        await self._look_for_skips()
        await self.catch_up()
        self.has_history.set()
        self._ready.met()
        self._logger.info(
            "caught_up", position=self._state.position, nodes=len(self._state.nodes), pods=len(self._state.pods)
        )
        self._changed()
        async for batch in self._log.follow(self._state.position, kinds=KINDS, batch=BATCH):
            await self._fold(batch)

    async def catch_up(self) -> None:
        """Returns when everything that was in the log at the call is folded. May run beside `run`: both go in order."""
        head = await self._log.head()
        async for batch in self._log.history(self._state.position, head.last_seq, kinds=KINDS, batch=BATCH):
            await self._fold(batch)
        self._state.skip(head.last_seq)

    async def _fold(self, batch: Sequence[StoredEvent]) -> None:
        for stored in batch:
            if stored.seq in self._skipped:
                self._state.skip(stored.seq)
                continue
            try:
                self._state.apply(stored)
            except UnreadableEvent as error:
                await self._halt(error)
                self._state.skip(stored.seq)
        age = max(0.0, (host_unix_nanos() - batch[-1].stored_at_ns) / 1e9)
        behind = len(batch) == BATCH
        self.is_lagging = behind and age > MOST_LAG_SECONDS
        self._metrics.follower_lag(FOLD, events=len(batch) if behind else 0, seconds=age if behind else 0.0)
        self._changed()

    async def _halt(self, error: UnreadableEvent) -> None:
        """Waits until an operator has said that this event is to be passed over."""
        self.is_halted = True
        self._metrics.follower_halted(FOLD, halted=True)
        self._ready.unmet(f"halted before {error}")
        self._logger.error("fold_halted", fold=FOLD, seq=error.seq, type=error.type_name, reason=error.reason)
        while error.seq not in self._skipped:
            await asyncio.sleep(_LOOK_FOR_SKIP_SECONDS)
            await self._look_for_skips()
        self._logger.warning("event_skipped", fold=FOLD, seq=error.seq)
        self.is_halted = False
        self._metrics.follower_halted(FOLD, halted=False)
        self._ready.met()

    async def _look_for_skips(self) -> None:
        for stored in await self._log.read_aggregate(AggregateRef("fold", FOLD)):
            event = CATALOGUE.read(stored)
            if isinstance(event, EventSkipped):
                self._skipped.add(event.seq)
