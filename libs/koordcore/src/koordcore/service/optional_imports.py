"""Import libraries without their optional parts, which cost memory on each node of a cluster.

    with without_optional():
        from koord_agent.compose import compose

All services share one image. So a library finds packages that other services need, and imports them for features that
this service does not use: nats-py imports aiohttp for WebSockets, structlog imports rich for tracebacks with local
variables, uvicorn imports watchfiles for restarts. They were 13 MiB of the 73 MiB of the agent.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, cast

OPTIONAL: Final = ("aiohttp", "greenlet", "multidict", "rich", "watchfiles")
"""Packages that our libraries import if they are installed, and do without if they are not."""


@contextmanager
def without_optional() -> Generator[None]:
    """Let the packages of `OPTIONAL` look as if they were not installed, for the libraries that are imported meanwhile.

    Afterwards, everybody else can import them, such as installed extensions. What is imported already stays.
    """
    modules = cast("dict[str, object]", sys.modules)
    hidden = [name for name in OPTIONAL if name not in modules]
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            if modules.get(name) is None:
                modules.pop(name, None)
