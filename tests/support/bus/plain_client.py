"""Clients of nats-py without our own connection, which wait for a slow server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import nats
from nats.aio.client import Client
from support.until import DEADLINE_SECONDS


async def connected_to(*urls: str, **options: object) -> Client:
    """Connect to one of the servers, and wait for it as long as any test waits."""
    return await nats.connect(list(urls), connect_timeout=int(DEADLINE_SECONDS), **options)  # type: ignore[arg-type]


@asynccontextmanager
async def plain_client(url: str) -> AsyncGenerator[Client]:
    """A client that is closed at the end of the block."""
    client = await connected_to(url)
    try:
        yield client
    finally:
        await client.close()
