"""Answer requests of other services to change objects, and those of `koord verify`. Only the leader answers.

Without an API server, a change is queued like a document of `koord apply`. With an API server, the change is sent to
it, and becomes a fact when the watch reports it. A repeated change is a no-op, so that the caller may repeat a request
after a lost answer.
"""

import uuid
from collections.abc import Sequence
from typing import Any

from koordcore.bus.client.connection import BusConnection
from koordcore.bus.names import BusNames
from koordcore.bus.work.endpoints import Audit, EndpointServer, Refusal
from koordcore.ports.leadership import Leadership
from koordcore.requests.catalogue import MANAGER_CHANGE_OBJECTS, MANAGER_STATE_HASH, StateHash, StateHashRequest
from koordcore.requests.endpoint import ErrorCode
from koordcore.requests.objects import (
    ChangeAnswer,
    ChangeNode,
    ChangeOutcome,
    ChangeRequest,
    ChangeResult,
    CreateObject,
    DeleteObject,
    ObjectChange,
)
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.documents.apply import Target
from koord_manager.domain.documents.object_changes import (
    is_present,
    node_path,
    node_request,
    outcome_of,
    request_of,
    uid_of,
)
from koord_manager.domain.gateway.requests import Request
from koord_manager.shell.documents.state_hash import hash_of
from koord_manager.shell.gateway.api import ApiResponse, KubernetesApi, send
from koord_manager.shell.intake import Intake, Result


class ObjectChanges:
    """Makes changes of objects for other services.

    Args:
        intake: Queue of documents, for a cluster without an API server.
    """

    def __init__(
        self, view: ManagerView, intake: Intake, leadership: Leadership, api: KubernetesApi | None = None
    ) -> None:
        self._view = view
        self._intake = intake
        self._leadership = leadership
        self._api = api

    async def run(self, connection: BusConnection, names: BusNames, audit: Audit) -> None:
        """Answer requests while this instance leads, until the task is cancelled."""
        while True:
            term = await self._leadership.acquired()
            server = EndpointServer(connection, names, audit=audit)
            server.serve(MANAGER_CHANGE_OBJECTS, self.change)
            server.serve(MANAGER_STATE_HASH, self.state_hash)
            await server.run_until(self._leadership.lost(term))

    async def state_hash(self, _request: StateHashRequest) -> StateHash:
        return await hash_of(self._view)

    async def change(self, request: ChangeRequest) -> ChangeAnswer:
        """Make the changes of a request, and return one outcome for each.

        Raises:
            Refusal: The log or the API server is away. The changes before the one that failed may have been made.
        """
        if self._api is not None:
            return ChangeAnswer(outcomes=[await self._sent(self._api, change) for change in request.changes])
        return ChangeAnswer(outcomes=await self._applied(request.changes))

    async def _sent(self, api: KubernetesApi, change: ObjectChange) -> ChangeOutcome:
        try:
            answer = await (_to_node(api, change) if isinstance(change, ChangeNode) else send(api, request_of(change)))
        except InvalidInput as error:
            return ChangeOutcome(result=ChangeResult.REFUSED, message=error.sentence())
        outcome = outcome_of(change, answer.status, "" if answer.ok else answer.message())
        if outcome is None:
            raise Refusal(ErrorCode.UNAVAILABLE, f"the API server does not make the change now: {answer.message()}")
        return outcome

    async def _applied(self, changes: Sequence[ObjectChange]) -> list[ChangeOutcome]:
        found: dict[int, ChangeOutcome] = {}
        subjects: dict[int, object] = {}
        for number, change in enumerate(changes):
            if isinstance(change, CreateObject):
                if is_present(self._view, change.document):
                    found[number] = ChangeOutcome(result=ChangeResult.EXISTS, message="an object of this name exists")
                else:
                    subjects[number] = change.document
            elif not isinstance(change, DeleteObject):
                subjects[number] = change
            elif change.uid and uid_of(self._view, change.kind, change.namespace, change.name) != change.uid:
                found[number] = ChangeOutcome(result=ChangeResult.ABSENT, message="no object has this uid")
            else:
                subjects[number] = Target(change.kind, change.namespace, change.name)
        results = await self._intake.submit(list(subjects.values()), str(uuid.uuid4()))
        found.update(zip(subjects, map(_outcome, results), strict=True))
        return [found[number] for number in range(len(changes))]


async def _to_node(api: KubernetesApi, change: ChangeNode) -> ApiResponse:
    """Read a node and patch it. Return the answer to the patch, or to the read if that failed."""
    found = await send(api, Request("read-node", "GET", node_path(change.name), None))
    if not found.ok:
        return found
    return await send(api, node_request(change, codec.decode(found.body, dict[str, Any])))


def _outcome(result: Result) -> ChangeOutcome:
    """Return the outcome of a change from the result of its document.

    Raises:
        Refusal: The log could not store the facts.
    """
    message = "; ".join(f"{error.field}: {error.rule}, got {error.value}".strip() for error in result.errors)
    match result.action:
        case "failed":
            raise Refusal(ErrorCode.UNAVAILABLE, message)
        case "not-found":
            return ChangeOutcome(result=ChangeResult.ABSENT, message="the object does not exist")
        case "refused" | "rejected":
            return ChangeOutcome(result=ChangeResult.REFUSED, message=message)
        case _:
            return ChangeOutcome(result=ChangeResult.DONE)
