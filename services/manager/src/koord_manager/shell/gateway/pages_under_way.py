"""Pages of lists whose facts wait for the log at the same time.

A page waits for the log three quarters of its time. Meanwhile the next ones are decided and encoded.
"""

import asyncio
from collections.abc import Coroutine
from collections.abc import Set as AbstractSet
from typing import Any, Final

from koordcore.ending import end_tasks
from koordcore.events.envelope import AggregateRef

MOST_AT_ONCE: Final = 3


class PagesUnderWay:
    """Work on several pages at once, of which no two have the same object. One task begins them all."""

    def __init__(self) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Has the first error of a page as soon as there is one."""
        self._refs: dict[asyncio.Task[None], AbstractSet[AggregateRef]] = {}

    async def begin(self, refs: AbstractSet[AggregateRef], work: Coroutine[Any, Any, None]) -> None:
        """Begin the work on a page, as soon as there is room and no page before it has one of its objects.

        Args:
            refs: The objects that the work is not done with yet.

        Raises:
            Exception: The error of a page before it.
        """
        try:
            while len(self._refs) >= MOST_AT_ONCE or any(not refs.isdisjoint(each) for each in self._refs.values()):
                await asyncio.wait(self._refs, return_when=asyncio.FIRST_COMPLETED)
            self._require_all_well()
        except BaseException:
            work.close()
            raise
        task = asyncio.create_task(work)
        self._refs[task] = refs
        task.add_done_callback(self._ended)

    async def all_ended(self) -> None:
        """Wait for all pages.

        Raises:
            Exception: The error of one of them.
        """
        while self._refs:
            await asyncio.wait(self._refs)
        self._require_all_well()

    async def close(self) -> None:
        """Cancel what is under way, and wait for its end."""
        await end_tasks(*self._refs, self.failed)

    def _require_all_well(self) -> None:
        if self.failed.done():
            self.failed.result()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self._refs[task]
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)
