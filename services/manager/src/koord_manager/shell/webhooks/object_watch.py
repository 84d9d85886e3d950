"""Watch one object of the API server by name, and report each change.

If the object changes while no watch is open, the next regular run finds the change. So no list and no stored version
are needed.

Source:
    manager spec, 7.2 (4); https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final, Protocol

from koordcore.retry import Backoff
from koordcore.service.telemetry.logging import Logger

from koord_manager.shell.gateway.api import ApiResponse, Unreachable

OPEN_SECONDS: Final = 300
"""How long the API server keeps a watch open."""
DEAD_SECONDS: Final = 330.0
"""Time after which a watch is closed, because an object may not change for months."""
LONGEST_PAUSE_SECONDS: Final = 60.0


class WatchingApi(Protocol):
    """The method of the API server's client that `watch_object` needs."""

    def lines(
        self, path: str, parameters: Mapping[str, str], *, idle_seconds: float
    ) -> contextlib.AbstractAsyncContextManager[ApiResponse | AsyncIterator[list[bytes]]]:
        """Open a watch and yield an iterator over batches of its lines, or the response if the watch is refused.

        Raises:
            Unreachable: The API server does not answer.
        """
        ...


async def watch_object(
    api: WatchingApi, collection: str, name: str, changed: Callable[[], None], logger: Logger
) -> None:
    """Watch one object of the API server until cancelled, and call `changed` for each event of the watch.

    Args:
        api: Client of the API server.
        collection: Path of the collection of the object.
        name: Name of the object.
        changed: Called without arguments.
        logger: Logs errors; the watch is opened again after them.
    """
    backoff = Backoff(1.0, LONGEST_PAUSE_SECONDS)
    parameters = {"watch": "1", "fieldSelector": f"metadata.name={name}", "timeoutSeconds": str(OPEN_SECONDS)}
    problem = ""
    while True:
        failure = ""
        try:
            async with api.lines(collection, parameters, idle_seconds=DEAD_SECONDS) as stream:
                if isinstance(stream, ApiResponse):
                    failure = f"{stream.status}: {stream.message()}"
                else:
                    async for _ in stream:
                        backoff.reset()
                        changed()
        except Unreachable as error:
            failure = str(error)
        if failure and failure != problem:
            logger.warning("webhook_object_not_watched", path=collection, name=name, reason=failure)
        problem = failure
        await backoff.wait()
