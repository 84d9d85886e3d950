"""What fails for one object is logged with its name and cause, and counted; the gateway goes on with the others.

The end of the term is not a failure: `NotLeading` goes through.
"""

import contextlib
from collections.abc import Callable, Generator

from koordcore.service.telemetry.logging import Logger

from koord_manager.shell.gateway.fact_appender import NotLeading


class ErrorBoundary:
    """For one part of the gateway. failed: is told of every failure (the part's name)."""

    def __init__(self, part: str, logger: Logger, failed: Callable[[str], None] = lambda _: None) -> None:
        self._part = part
        self._logger = logger
        self._failed = failed

    @contextlib.contextmanager
    def __call__(self, about: object) -> Generator[None]:
        """Whatever is raised within concerns this object only. about: what it is called in the log."""
        try:
            yield
        except NotLeading:
            raise
        except Exception as error:
            self._failed(self._part)
            self._logger.error(
                "gateway_object_failed",
                part=self._part,
                object=str(about),
                error=f"{type(error).__name__}: {error}",
                exc_info=error,
            )
