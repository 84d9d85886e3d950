"""Comparisons that callers have asked for. One runs at a time; each request waits for its end for some seconds."""

import asyncio
from collections import OrderedDict
from typing import Final

from koordcore.bus.work.endpoints import Refusal
from koordcore.requests.comparing import CompareRequest, Comparison
from koordcore.requests.endpoint import ErrorCode

from koord_projector.comparing.comparison import Streams, compare
from koord_projector.context import ProjectorContext

WAIT_SECONDS: Final = 5.0
_KEPT: Final = 4


class _Run:
    def __init__(self, context: ProjectorContext, streams: Streams) -> None:
        self.position = self.folded = 0
        self.task = asyncio.create_task(compare(context, streams, self._note))

    def _note(self, position: int, folded: int) -> None:
        self.position, self.folded = position, folded


class Comparisons:
    def __init__(self, context: ProjectorContext, streams: Streams) -> None:
        self._context = context
        self._streams = streams
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    async def answer(self, request: CompareRequest) -> Comparison:
        """Raises:
        Refusal: Another comparison runs.
        """
        run = self._runs.get(request.run)
        if run is None:
            if any(not each.task.done() for each in self._runs.values()):
                raise Refusal(ErrorCode.UNAVAILABLE, "another comparison runs")
            run = self._runs[request.run] = _Run(self._context, self._streams)
            if len(self._runs) > _KEPT:
                self._runs.popitem(last=False)
        await asyncio.wait((run.task,), timeout=WAIT_SECONDS)
        if run.task.done():
            return run.task.result()
        return Comparison(is_done=False, position=run.position, folded=run.folded)
