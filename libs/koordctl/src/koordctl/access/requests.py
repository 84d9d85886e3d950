"""Requests over the log's connection: to the scheduler about capacity, and to the manager to change objects.

Changes of objects work with and without an API server.
"""

from collections.abc import Sequence

from koordcore.requests.catalogue import MANAGER_CHANGE_OBJECTS, SCHEDULER_FIT
from koordcore.requests.fit import FitAnswer, FitRequest
from koordcore.requests.objects import ChangeOutcome, ChangeRequest, ObjectChange

from koordctl.access.clients import SEE_STATUS, LogTrouble
from koordctl.access.log import OpenLog, open_log

SECONDS = 15.0
"""Real seconds after which a change fails."""


async def ask_capacity(request: FitRequest, *, seconds: float) -> FitAnswer:
    """Ask the scheduler where new pods would be placed now. A standby instance answers if there is one.

    Args:
        seconds: Real seconds after which the call fails.

    Raises:
        LogTrouble: The scheduler refused the question, or does not answer in this time.
    """
    async with open_log() as log:
        return await ask_capacity_on(log, request, seconds=seconds)


async def ask_capacity_on(log: OpenLog, request: FitRequest, *, seconds: float) -> FitAnswer:
    """`ask_capacity` on an open connection."""
    from koordcore.bus.client.connection import NoAnswer
    from koordcore.bus.work.requests import RequestFailed, ask

    try:
        return await ask(log.connection, log.names, SCHEDULER_FIT, request, seconds=seconds)
    except NoAnswer as error:
        raise LogTrouble(f"the scheduler has not answered within {seconds:g} s: {SEE_STATUS}") from error
    except RequestFailed as error:
        raise LogTrouble(f"scheduler: {error}") from error


async def change_objects(changes: Sequence[ObjectChange]) -> list[ChangeOutcome]:
    """Ask the leading manager to change objects, in order, and return one outcome per change.

    Raises:
        LogTrouble: The manager refused the request as a whole, or did not answer in time; changes may have been made
            then. The refusal of a single change is its outcome.
    """
    from koordcore.bus.client.connection import NoAnswer
    from koordcore.bus.work.requests import RequestFailed, ask

    request = ChangeRequest(changes=list(changes))
    async with open_log() as log:
        try:
            answer = await ask(log.connection, log.names, MANAGER_CHANGE_OBJECTS, request, seconds=SECONDS)
        except NoAnswer as error:
            raise LogTrouble(f"the manager has not answered within {SECONDS:g} s: {SEE_STATUS}") from error
        except RequestFailed as error:
            raise LogTrouble(f"manager: {error}") from error
    return answer.outcomes
