"""A client of the API server for the measurement: creates many objects, and asks how many pods are bound.

It parses as little as it can, because it shares the cores with what is measured. It opens no watch of pods during a row
about throughput: its watch would cost the API server one more encoding of each change.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import aiohttp
import msgspec
from support.kubernetes.control_plane import ControlPlane

Json = dict[str, Any]

WRITERS: Final = 20
INITIAL_NAMESPACE: Final = "sched-0"
"""Namespace of the pods that are bound before a row begins."""
NAMESPACE: Final = "sched-1"
"""Namespace of the measured pods."""
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
INITIAL_PODS: Final = f"/api/v1/namespaces/{INITIAL_NAMESPACE}/pods"
EVENTS: Final = f"/api/v1/namespaces/{NAMESPACE}/events"
INITIAL_EVENTS: Final = f"/api/v1/namespaces/{INITIAL_NAMESPACE}/events"
_AT_ONCE: Final[Json] = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class RequestFailed(Exception):
    """Raised if the API server refused a request. The message names the request and the answer."""


class Api:
    """Requests of the administrator."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> bytes:
        """Send a request and return the body of its answer.

        Args:
            method: HTTP method.
            path: Path and query.
            body: JSON value, bytes of JSON, or None.
            headers: Further headers; `_` in a name stands for `-`.

        Raises:
            RequestFailed: The status is not 2xx.
        """
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        named = {"content-type": "application/json"} | {key.replace("_", "-"): text for key, text in headers.items()}
        async with self._session.request(method, path, data=data, headers=named) as answer:
            found = await answer.read()
            if not answer.ok:
                raise RequestFailed(f"{method} {path}: {answer.status} {found[:300].decode()}")
            return found

    async def get(self, path: str, **headers: str) -> Json:
        """Return an object or a list."""
        return msgspec.json.decode(await self.ask("GET", path, **headers))

    async def create(self, path: str, bodies: Sequence[bytes], writers: int = WRITERS) -> None:
        """Create objects in a collection, in order, `writers` at once."""
        waiting = iter(bodies)

        async def write() -> None:
            for body in waiting:
                await self.ask("POST", path, body)

        await asyncio.gather(*(write() for _ in range(writers)))

    async def patch(self, patches: Sequence[tuple[str, Json]], writers: int = WRITERS) -> None:
        """Send merge patches: (path, patch)."""
        waiting = iter(patches)

        async def write() -> None:
            for path, body in waiting:
                await self.ask("PATCH", path, body, content_type="application/merge-patch+json")

        await asyncio.gather(*(write() for _ in range(writers)))

    async def clear(self, path: str) -> None:
        """Delete a collection, without a grace period.

        The API server ends a request after 60 s, and has then deleted a part of a large collection. So the request is
        repeated as long as the collection becomes smaller.

        Raises:
            RequestFailed: A request deleted nothing.
        """
        remaining = await self.count(path)
        while remaining:
            with suppress(aiohttp.ClientConnectionError, RequestFailed):
                await self.ask("DELETE", path, _AT_ONCE)
            left = await self.count(path)
            if left >= remaining:
                raise RequestFailed(f"DELETE {path}: {left:,} objects remain, as many as before the request")
            remaining = left

    async def count(self, path: str) -> int:
        """Return the number of objects in a collection."""
        found = await self.get(f"{path}?limit=1", accept=_METADATA_ONLY)
        return len(found["items"] or ()) + int(found["metadata"].get("remainingItemCount", 0))

    async def delete(self, paths: Sequence[str], writers: int = WRITERS) -> None:
        """Delete objects, `writers` at once."""
        waiting = iter(paths)

        async def write() -> None:
            for path in waiting:
                await self.ask("DELETE", path)

        await asyncio.gather(*(write() for _ in range(writers)))

    async def is_bound(self, path: str) -> bool:
        """Return whether a pod has a node."""
        found = await self.get(path)
        return bool(found["spec"].get("nodeName"))

    async def unbound(self, path: str) -> int:
        """Return the number of pods of a collection without a node."""
        found = await self.get(f"{path}?fieldSelector=spec.nodeName%3D&resourceVersion=0", accept=_METADATA_ONLY)
        return len(found["items"] or ())

    async def watch(self, path: str) -> AsyncIterator[list[bytes]]:
        """Yield the lines of a watch that begins now."""
        version = (await self.get(f"{path}?limit=1"))["metadata"]["resourceVersion"]
        query = f"{path}?watch=1&resourceVersion={version}&timeoutSeconds=600"
        async with self._session.get(query, timeout=aiohttp.ClientTimeout(total=None)) as answer:
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                yield lines


@asynccontextmanager
async def open_api(plane: ControlPlane) -> AsyncGenerator[Api]:
    """Connect as the administrator."""
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=plane.tls.ca), limit=100)
    headers = {"authorization": f"Bearer {plane.admin_token}"}
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(plane.url, connector=connector, headers=headers, timeout=timeout) as session:
        yield Api(session)
