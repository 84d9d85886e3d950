"""Requests to the scheduler's capacity question: on which nodes would these pods be placed now?"""

from koordcore.requests.catalogue import SCHEDULER_FIT
from koordcore.requests.fit import FitAnswer, FitRequest

from koordctl.access.log import OpenLog, open_log
from koordctl.access.trouble import SEE_STATUS, LogTrouble


async def ask_capacity(request: FitRequest, *, seconds: float) -> FitAnswer:
    """Ask the scheduler where new pods would be placed now, and return its answer.

    A standby instance answers if there is one.

    Args:
        request: The pods, with their numbers of replicas.
        seconds: Real seconds after which the call fails.

    Raises:
        LogTrouble: The scheduler refused the question, or does not answer in this time.
    """
    async with open_log() as log:
        return await ask_capacity_on(log, request, seconds=seconds)


async def ask_capacity_on(log: OpenLog, request: FitRequest, *, seconds: float) -> FitAnswer:
    """Ask the scheduler as `ask_capacity` does, on an open connection.

    Raises:
        LogTrouble: The scheduler refused the question, or does not answer in this time.
    """
    from koordcore.bus.client.connection import NoAnswer
    from koordcore.bus.work.requests import RequestFailed, ask

    try:
        return await ask(log.connection, log.names, SCHEDULER_FIT, request, seconds=seconds)
    except NoAnswer as error:
        raise LogTrouble(f"the scheduler has not answered within {seconds:g} s: {SEE_STATUS}") from error
    except RequestFailed as error:
        raise LogTrouble(f"scheduler: {error}") from error
