"""Log an outage of the API server once for each cause and step, and not once for each of the thirty list-watches."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from koordcore.service.telemetry.logging import Logger

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Step:
    """The time after a line in the log, in which further problems of the same cause are only counted.

    Attributes:
        seconds: Length of this time.
        ends: Its end in seconds.
        others: Resources that had the problem in this time.
    """

    seconds: float
    ends: float
    others: set[str] = field(default_factory=set[str])


class OutageLog:
    """Logs the problems of all list-watches.

    The first problem of a cause is logged at once. The next line of this cause follows after 1, 2, 4 ... 60 seconds and
    names the resources that had it meanwhile. After a pause that is as long as the last step, the steps begin again.

    Args:
        now: Returns the time of the host in seconds.
    """

    def __init__(self, logger: Logger, now: Callable[[], float]) -> None:
        self._logger = logger
        self._now = now
        self._steps: dict[str, _Step] = {}

    def note(self, cause: str, resource: str, problem: str) -> None:
        """Log or count a problem.

        Args:
            cause: Kind of the problem, which is the name of the line: `watch_<cause>`.
            resource: Resource that cannot be listed or watched.
            problem: Description.
        """
        now, step = self._now(), self._steps.get(cause)
        if step is not None and now < step.ends:
            step.others.add(resource)
            return
        goes_on = step is not None and now < step.ends + step.seconds
        seconds = min(step.seconds * 2, LONGEST_SECONDS) if step is not None and goes_on else FIRST_SECONDS
        others = sorted(step.others - {resource}) if step is not None else []
        self._steps[cause] = _Step(seconds, now + seconds)
        self._logger.warning(f"watch_{cause}", resource=resource, others=others, problem=problem)
