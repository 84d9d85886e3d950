"""Log and count an error about one object, so that the gateway continues with the others.

`NotLeading` is not a failure and is raised.
"""

import contextlib
from collections.abc import Callable, Generator

from koordcore.service.telemetry.logging import Logger

from koord_manager.shell.gateway.fact_appender import NotLeading


class ErrorBoundary:
    """Catches, logs and counts the errors of one part of the gateway.

    Call it with an object's name to get a context manager. `NotLeading` is not caught.

    Args:
        failed: Called with the name of the part for each error.
    """

    def __init__(self, part: str, logger: Logger, failed: Callable[[str], None] = lambda _: None) -> None:
        self._part = part
        self._logger = logger
        self._failed = failed

    @contextlib.contextmanager
    def __call__(self, about: object) -> Generator[None]:
        """Catch, log and count an error about one object, whose name is `about`; `NotLeading` is raised."""
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
