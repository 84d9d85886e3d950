"""The read API: `ENDPOINTS` lists all endpoints, for the router and for `/openapi.json`."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from koordcore.ports.clock import Clock
from koordcore.requests.catalogue import StateHash
from koordcore.stories.usage_archive import ReportsAnswer
from koordcore.values import codec
from psycopg.errors import UndefinedTable
from sqlalchemy.exc import ProgrammingError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from koord_projector.context import Progress
from koord_projector.read import (
    cluster,
    colocation,
    descheduling,
    events,
    gangs,
    hardware,
    marks,
    nodes,
    objects,
    pod,
    pods,
    reservations,
    search,
    status,
)
from koord_projector.read.endpoint import Endpoint, Query, Reading, json_answer, openapi_document, read_query, refusal
from koord_projector.read.moments import PRESENT, resolve
from koord_projector.store.database import READ_ERRORS, Database

_NO_POD: Final = "there was no such pod up to that moment"
_NO_NODE: Final = "there is no such node at that moment"
_STREAM: Final = Endpoint(
    path="/api/events/stream",
    name="events_stream",
    about="Facts as they are committed, as server-sent events: `facts` (a list), `skipped` (too many).",
    query=events.StreamQuery,
    answer=None,
)
_REBUILD: Final = Endpoint(
    path="/admin/rebuild",
    name="rebuild",
    method="POST",
    about=(
        "Drop what is folded from the facts and fold it again from the first one. Needs the content type"
        " application/json. If the log lacks facts that the rows have, it is refused (409) without the body"
        ' {"discard": true}.'
    ),
    query=Query,
    answer=status.RebuildAnswer,
)
ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = (
    Endpoint(
        path="/api/status",
        name="status",
        about="How far the projector is, and what is in its way.",
        query=Query,
        answer=status.StatusAnswer,
        read=status.read_status,
    ),
    Endpoint(
        path="/api/cluster",
        name="cluster",
        about="The cluster in numbers.",
        query=cluster.ClusterQuery,
        answer=cluster.ClusterAnswer,
        read=cluster.read_cluster,
    ),
    Endpoint(
        path="/api/series",
        name="series",
        about="Totals of the cluster over time.",
        query=cluster.SeriesQuery,
        answer=cluster.SeriesAnswer,
        read=cluster.read_series,
    ),
    Endpoint(
        path="/api/marks",
        name="marks",
        about="Changes of configuration, evictions and disturbances, for the time axis.",
        query=marks.MarksQuery,
        answer=marks.MarksAnswer,
        read=marks.read_marks,
    ),
    Endpoint(
        path="/api/nodes",
        name="nodes",
        about="Nodes with what is requested, used and reclaimed on them.",
        query=nodes.NodesQuery,
        answer=nodes.NodesAnswer,
        read=nodes.read_nodes,
    ),
    Endpoint(
        path="/api/nodes/{name}",
        name="node",
        about="One node, with the terms of its overcommitment and the history of its suppression.",
        query=nodes.NodeQuery,
        answer=nodes.NodeAnswer,
        read=nodes.read_node,
        missing=_NO_NODE,
    ),
    Endpoint(
        path="/api/nodes/{name}/hardware",
        name="hardware",
        about="Sockets, zones, cores, switches and devices of one node, with the pods that hold them.",
        query=nodes.NodeQuery,
        answer=hardware.HardwareAnswer,
        read=hardware.read_hardware,
        missing=_NO_NODE,
    ),
    Endpoint(
        path="/api/devices",
        name="devices",
        about="Devices of the nodes that have a Device object, with their shares and holders.",
        query=hardware.DevicesQuery,
        answer=hardware.DevicesAnswer,
        read=hardware.read_devices,
    ),
    Endpoint(
        path="/api/reservations",
        name="reservations",
        about="Reservations with their nodes, what they hold, and the pods that use them.",
        query=reservations.ReservationsQuery,
        answer=reservations.ReservationsAnswer,
        read=reservations.read_reservations,
    ),
    Endpoint(
        path="/api/colocation",
        name="colocation",
        about="Nodes that hold back best-effort pods, who disturbed whom, and evictions by agents.",
        query=colocation.ColocationQuery,
        answer=colocation.ColocationAnswer,
        read=colocation.read_colocation,
    ),
    Endpoint(
        path="/api/gangs",
        name="gangs",
        about="Gangs that have pods, with the phases of their members and what they wait for.",
        query=gangs.GangsQuery,
        answer=gangs.GangsAnswer,
        read=gangs.read_gangs,
    ),
    Endpoint(
        path="/api/search",
        name="search",
        about="Pods, nodes, other objects and facts whose name, uid, id or position matches a text.",
        query=search.SearchQuery,
        answer=search.SearchAnswer,
        read=search.search_everything,
    ),
    Endpoint(
        path="/api/audit",
        name="audit",
        about="What the descheduler changed or refused to change, newest first, with its reasons.",
        query=descheduling.AuditQuery,
        answer=descheduling.AuditAnswer,
        read=descheduling.read_audit,
    ),
    Endpoint(
        path="/api/observations",
        name="observations",
        about="Archived usage reports of all nodes, oldest first. Go on with time and node of the last report.",
        query=nodes.ReportsQuery,
        answer=ReportsAnswer,
        read=nodes.read_reports,
    ),
    Endpoint(
        path="/api/rounds",
        name="rounds",
        about="Rounds of the descheduler: classified nodes, chosen pods, and the limits that are reached.",
        query=descheduling.RoundsQuery,
        answer=descheduling.RoundsAnswer,
        read=descheduling.read_rounds,
    ),
    Endpoint(
        path="/api/pods",
        name="pods",
        about="Pods that match a filter, newest submission first.",
        query=pods.PodsQuery,
        answer=pods.PodsAnswer,
        read=pods.list_pods,
    ),
    Endpoint(
        path="/api/pods/{uid}",
        name="pod",
        about="One pod and its life: every step with who, when and why.",
        query=pod.PodQuery,
        answer=pod.PodAnswer,
        read=pod.read_pod,
        missing=_NO_POD,
    ),
    Endpoint(
        path="/api/namespaces/{namespace}/pods/{name}",
        name="pod_by_name",
        about="The newest pod of that name and its life.",
        query=pod.PodByNameQuery,
        answer=pod.PodAnswer,
        read=pod.read_pod_by_name,
        missing=_NO_POD,
    ),
    Endpoint(
        path="/api/pending",
        name="pending",
        about="Why pods are pending: reasons of their last explanations, counted.",
        query=pods.PendingQuery,
        answer=pods.PendingAnswer,
        read=pods.explain_pending,
    ),
    Endpoint(
        path="/api/events",
        name="events",
        about="Facts as they stand in the log, newest first.",
        query=events.EventsQuery,
        answer=events.EventsAnswer,
        read=events.page_events,
    ),
    _STREAM,
    Endpoint(
        path="/api/events/{seq}",
        name="event",
        about="One fact with its body.",
        query=events.EventQuery,
        answer=events.EventItem,
        read=events.read_event,
        missing="no fact is kept at that position",
    ),
    Endpoint(
        path="/api/objects/{kind}",
        name="objects",
        about="States of all aggregates of one kind.",
        query=objects.ObjectsQuery,
        answer=objects.ObjectsAnswer,
        read=objects.list_objects,
    ),
    Endpoint(
        path="/api/objects/{kind}/{id}",
        name="object",
        about="State of one aggregate; null when it does not exist at that moment.",
        query=objects.ObjectQuery,
        answer=objects.ObjectAnswer,
        read=objects.read_object,
    ),
    Endpoint(
        path="/api/hash",
        name="hash",
        about="Canonical hash of the stored state, and the position that it belongs to.",
        query=Query,
        answer=StateHash,
        read=status.read_hash,
    ),
    _REBUILD,
)

Handler = Callable[[Request], Awaitable[Response]]


def routes_of(
    database: Database,
    *,
    cluster: str,
    progress: Progress,
    clock: Clock,
    tail: Callable[[Request, int | None], Response],
) -> list[Route]:
    """`tail` answers requests for the live tail, from a position on."""

    async def rebuild(request: Request) -> Response:
        # A page of another site cannot send this content type without permission.
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return refusal(415, "the content type must be application/json")
        try:
            wanted = codec.decode(await request.body() or b"{}", status.RebuildRequest)
        except codec.DecodeError as error:
            return refusal(400, str(error))
        if progress.keeps_facts and not wanted.discard:
            return refusal(409, progress.trouble)
        progress.may_discard = wanted.discard
        progress.rebuild_wanted.set()
        return json_answer(status.RebuildAnswer(True), 202)

    async def stream(request: Request) -> Response:
        return tail(request, read_query(events.StreamQuery, request.query_params).after)

    def answering(endpoint: Endpoint[Any]) -> Handler:
        read = endpoint.read
        if read is None:
            return stream if endpoint is _STREAM else rebuild

        async def answer(request: Request) -> Response:
            # 1. the query: each parameter has a value that its field allows
            query = read_query(endpoint.query, {**request.query_params, **request.path_params})
            async with database.reading() as connection:
                # 2. the moment that it names
                at = getattr(query, "at", None)
                moment = PRESENT if at is None else await resolve(connection, at, clock)
                # 3. the answer, which states the moment
                reading = Reading(
                    connection=connection,
                    moment=moment,
                    clock=clock,
                    now=clock.now(),
                    progress=progress,
                    cluster=cluster,
                )
                found = await read(reading, query)
            return refusal(404, endpoint.missing) if found is None else json_answer(found)

        return answer

    document = openapi_document(ENDPOINTS)

    async def describe(_request: Request) -> Response:
        return json_answer(document)

    return [
        *(
            Route(each.path, _guarded(each.name, answering(each), database), methods=[each.method])
            for each in ENDPOINTS
        ),
        Route("/openapi.json", describe, methods=["GET"]),
    ]


def _guarded(name: str, handler: Handler, database: Database) -> Handler:
    """Return a handler that answers 503 while Postgres is unavailable, and before the tables are created.

    A table that is missing later was removed by somebody. Then the answer is 500, and the error is logged.
    """

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except READ_ERRORS as error:
            return refusal(503, f"Postgres is away: {str(error).splitlines()[0]}")
        except ProgrammingError as error:
            if database.is_migrated or not isinstance(error.orig, UndefinedTable):
                raise
            return refusal(503, "the tables are not created yet")

    guarded.__name__ = name  # names the handler in the metrics
    return guarded
