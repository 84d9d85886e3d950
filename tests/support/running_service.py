"""A service in the process of its test.

async with running_service(settings, compose) as shell:
    ...
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import TypeVar

from koordcore.service.lifecycle import Component
from koordcore.service.run import Compose, Shell, serve
from koordcore.service.settings import ServiceSettings

S = TypeVar("S", bound=ServiceSettings)


@contextlib.asynccontextmanager
async def running_service(settings: S, compose: Compose[S], *, complete: bool = True) -> AsyncGenerator[Shell[S]]:
    """The service once its components have started; it is stopped at the end and has to end with status 0.

    complete  False: only the HTTP server has started, and the service may wait for others
    raises    AssertionError when it ends before it has started, or with another status
    """
    started: asyncio.Future[Shell[S]] = asyncio.get_running_loop().create_future()

    async def compose_and_tell(shell: Shell[S]) -> None:
        async def say_started() -> None:
            started.set_result(shell)

        if not complete:
            shell.service.add(Component(name="started", start=say_started))
        await compose(shell)
        if complete:
            shell.service.add(Component(name="started", start=say_started))

    serving = asyncio.create_task(serve(settings, compose_and_tell, handle_signals=False))
    try:
        await asyncio.wait((serving, started), return_when=asyncio.FIRST_COMPLETED)
        assert started.done(), f"the {settings.service} ended with status {serving.result()} before it had started"
        yield started.result()
    finally:
        if started.done():
            started.result().service.stop("the test has ended")
        else:
            serving.cancel()
        await asyncio.wait((serving,))
    assert serving.result() == 0
