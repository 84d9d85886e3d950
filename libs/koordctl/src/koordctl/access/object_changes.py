"""Requests to the manager to change objects. They work with and without an API server."""

from collections.abc import Sequence

from koordcore.requests.catalogue import MANAGER_CHANGE_OBJECTS
from koordcore.requests.objects import ChangeOutcome, ChangeRequest, ObjectChange

from koordctl.access.log import open_log
from koordctl.access.trouble import SEE_STATUS, LogTrouble

SECONDS = 15.0
"""Real seconds after which a change fails."""


async def change_objects(changes: Sequence[ObjectChange]) -> list[ChangeOutcome]:
    """Ask the leading manager to change objects, and return one outcome per change.

    Args:
        changes: The changes, in order.

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
