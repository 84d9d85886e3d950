"""Requests to the manager, which is the only writer of objects."""

from collections.abc import Sequence
from typing import Final, Protocol

from koordcore.bus.client.connection import BusConnection, NoAnswer
from koordcore.bus.names import BusNames
from koordcore.bus.work.requests import RequestFailed, ask
from koordcore.requests.catalogue import MANAGER_CHANGE_OBJECTS
from koordcore.requests.objects import ChangeOutcome, ChangeRequest, ChangeResult, DeleteObject, ObjectChange
from koordcore.service.telemetry.logging import Logger

SECONDS: Final = 20.0
"""Real seconds after which a request is given up. The next look asks again."""


class NotWritten(Exception):
    """The manager does not answer, or cannot write now. Some of the changes may have been made. Try again later."""


class ObjectWriter(Protocol):
    async def change(self, changes: Sequence[ObjectChange]) -> list[ChangeOutcome]:
        """One outcome per change, in the same order: done, it existed already, the object does not exist, or refused.

        Raises:
            NotWritten: There is no answer with outcomes. All, some or none of the changes may have been made.
        """
        ...


def log_refused_deletions(logger: Logger, changes: Sequence[DeleteObject], outcomes: Sequence[ChangeOutcome]) -> None:
    """In one line: how many, with the first of them and its reason. No-op if none was refused."""
    both = zip(changes, outcomes, strict=True)
    refused = [(change, outcome) for change, outcome in both if outcome.result is ChangeResult.REFUSED]
    for change, outcome in refused[:1]:
        first = f"{change.kind} {change.name}"
        logger.warning("deletions_refused", deletions=len(refused), first=first, reason=outcome.message)


class ManagerWriter:
    def __init__(self, connection: BusConnection, names: BusNames) -> None:
        self._connection = connection
        self._names = names

    async def change(self, changes: Sequence[ObjectChange]) -> list[ChangeOutcome]:
        """Wait up to `SECONDS` for the answer of the leading manager."""
        request = ChangeRequest(changes=list(changes))
        try:
            answer = await ask(self._connection, self._names, MANAGER_CHANGE_OBJECTS, request, seconds=SECONDS)
        except (NoAnswer, RequestFailed) as error:
            raise NotWritten(str(error)) from error
        return answer.outcomes
