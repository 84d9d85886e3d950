"""A TCP relay in front of a server that can lose what the server says: for acknowledgements that never arrive."""

import asyncio
import contextlib
from urllib.parse import urlparse


class LossyProxy:
    """Relays connections to one server.

    Attributes:
        swallow: While it is set, bytes from the server are thrown away.
        swallowed: What has been thrown away.
        sent: What clients have sent.
    """

    def __init__(self, target_url: str) -> None:
        target = urlparse(target_url)
        assert target.hostname is not None
        assert target.port is not None
        self._host = target.hostname
        self._port = target.port
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallow = False
        self.swallowed = bytearray()
        self.sent = bytearray()

    @property
    def url(self) -> str:
        """Where clients connect."""
        assert self._server is not None
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    async def stop(self) -> None:
        """End everything."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        self._writers += [writer, up_writer]
        for source, sink, lossy in ((reader, up_writer, False), (up_reader, writer, True)):
            task = asyncio.get_running_loop().create_task(self._relay(source, sink, lossy=lossy))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _relay(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, lossy: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if lossy and self.swallow:
                    self.swallowed += data
                    continue
                if not lossy:
                    self.sent += data
                sink.write(data)
                await sink.drain()
        sink.close()
