"""The read API: `endpoints_of` defines all endpoints, for the router and for `/openapi.json`."""

from collections.abc import Awaitable, Callable, Sequence

from koordcore.requests.catalogue import StateHash
from koordcore.stories.usage_archive import ReportsAnswer
from psycopg.errors import UndefinedTable
from sqlalchemy.exc import ProgrammingError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from koord_projector.read import answers, parameters
from koord_projector.read.colocation import ColocationAnswer
from koord_projector.read.descheduling import AuditAnswer, RoundsAnswer
from koord_projector.read.endpoint import Endpoint, Parameter, json_answer, openapi_document, refusal
from koord_projector.read.gangs import GangsAnswer
from koord_projector.read.handlers import Handlers
from koord_projector.read.reservations import ReservationsAnswer
from koord_projector.read.search import SearchAnswer
from koord_projector.store.database import READ_ERRORS, Database


def endpoints_of(handlers: Handlers) -> Sequence[Endpoint]:
    """Return the definitions of all endpoints of the read API, with these handlers."""
    no_pod, no_node = "There was no such pod up to that moment.", "There is no such node at that moment."
    return (
        Endpoint(
            path="/api/status",
            handler=handlers.status,
            about="How far the projector is, and what is in its way.",
            answer=answers.StatusAnswer,
        ),
        Endpoint(
            path="/api/cluster",
            handler=handlers.cluster,
            about="The cluster in numbers.",
            answer=answers.ClusterAnswer,
            parameters=(parameters.AT,),
        ),
        Endpoint(
            path="/api/series",
            handler=handlers.series,
            about="Totals of the cluster over time.",
            answer=answers.SeriesAnswer,
            parameters=(parameters.SINCE, parameters.UNTIL, parameters.POINTS),
        ),
        Endpoint(
            path="/api/nodes",
            handler=handlers.nodes,
            about="Nodes with what is requested, used and reclaimed on them.",
            answer=answers.NodesAnswer,
            parameters=(parameters.AT,),
        ),
        Endpoint(
            path="/api/nodes/{name}",
            handler=handlers.node,
            about="One node, with the terms of its overcommitment and the history of its suppression.",
            answer=answers.NodeAnswer,
            parameters=(_path("name", "Name of the node."), parameters.AT),
            missing=no_node,
        ),
        Endpoint(
            path="/api/nodes/{name}/hardware",
            handler=handlers.hardware,
            about="Sockets, zones, cores, switches and devices of one node, with the pods that hold them.",
            answer=answers.HardwareAnswer,
            parameters=(_path("name", "Name of the node."), parameters.AT),
            missing=no_node,
        ),
        Endpoint(
            path="/api/devices",
            handler=handlers.devices,
            about="Devices of the nodes that have a Device object, with their shares and holders.",
            answer=answers.DevicesAnswer,
            parameters=(_query("after", "Only nodes after this one."), parameters.LIMIT_DEVICES, parameters.AT),
        ),
        Endpoint(
            path="/api/reservations",
            handler=handlers.reservations,
            about="Reservations with their nodes, what they hold, and the pods that use them.",
            answer=ReservationsAnswer,
            parameters=(
                _query("name", "Only the Reservation with this name."),
                _query("after", "Only Reservations after this one."),
                parameters.LIMIT_RESERVATIONS,
                parameters.AT,
            ),
        ),
        Endpoint(
            path="/api/colocation",
            handler=handlers.colocation,
            about="Nodes that hold back best-effort pods, who disturbed whom, and evictions by agents.",
            answer=ColocationAnswer,
            parameters=(parameters.LIMIT_COLOCATION, parameters.AT),
        ),
        Endpoint(
            path="/api/gangs",
            handler=handlers.gangs,
            about="Gangs that have pods, with the phases of their members and what they wait for.",
            answer=GangsAnswer,
            parameters=(
                _query("after", "Only gangs after this one, as namespace/name."),
                parameters.LIMIT_GANGS,
                parameters.AT,
            ),
        ),
        Endpoint(
            path="/api/search",
            handler=handlers.search,
            about="Pods, nodes, other objects and facts whose name, uid, id or position matches a text.",
            answer=SearchAnswer,
            parameters=(
                _query("text", "A part of a name, a uid, a position, or the id of a fact or trace."),
                parameters.LIMIT_SEARCH,
                parameters.AT,
            ),
        ),
        Endpoint(
            path="/api/audit",
            handler=handlers.audit,
            about="What the descheduler changed or refused to change, newest first, with its reasons.",
            answer=AuditAnswer,
            parameters=(
                _query("pod", "Only this pod: its name, namespace/name, or uid."),
                _query("node", "Only pods and drains of this node."),
                _query("workload", "Only pods of this workload, as KIND/NAMESPACE/NAME."),
                _query("job", "Only this PodMigrationJob."),
                _query("plugin", "Only this plugin or controller."),
                _query("action", "Only this action."),
                _query("reason", "Only with this text in the reasons."),
                _query("since", "Only from this RFC 3339 time on."),
                _query("until", "Only up to this RFC 3339 time."),
                parameters.BEFORE,
                parameters.AFTER,
                parameters.LIMIT_AUDIT,
            ),
        ),
        Endpoint(
            path="/api/observations",
            handler=handlers.observations,
            about="Archived usage reports of all nodes, oldest first. Go on with time and node of the last report.",
            answer=ReportsAnswer,
            parameters=(
                _query("since", "Only from this RFC 3339 time on."),
                _query("after", "Of the reports with exactly this time, only those of nodes after this one."),
                parameters.LIMIT_OBSERVATIONS,
            ),
        ),
        Endpoint(
            path="/api/rounds",
            handler=handlers.rounds,
            about="Rounds of the descheduler: classified nodes, chosen pods, and the limits that are reached.",
            answer=RoundsAnswer,
            parameters=(parameters.LIMIT_ROUNDS, parameters.AT),
        ),
        Endpoint(
            path="/api/pods",
            handler=handlers.pods,
            about="Pods that match a filter, newest submission first.",
            answer=answers.PodsAnswer,
            parameters=(
                _query("namespace", "Only pods of this namespace."),
                _query("phase", "Only pods in this phase.", parameters.PHASES),
                _query("qos", "Only pods of this QoS class.", parameters.QOS),
                _query("node", "Only pods on this node."),
                _query("gang", "Only pods of the gangs with this name."),
                _query("text", "Only pods with this in namespace/name, or with this uid."),
                parameters.LIMIT_PODS,
                _query("cursor", "From the page before."),
                parameters.AT,
            ),
        ),
        Endpoint(
            path="/api/pods/{uid}",
            handler=handlers.pod,
            about="One pod and its life: every step with who, when and why.",
            answer=answers.PodAnswer,
            parameters=(_path("uid", "Uid of the pod."), parameters.AT),
            missing=no_pod,
        ),
        Endpoint(
            path="/api/namespaces/{namespace}/pods/{name}",
            handler=handlers.pod_by_name,
            about="The newest pod of that name and its life.",
            answer=answers.PodAnswer,
            parameters=(_path("namespace", "Namespace of the pod."), _path("name", "Name of the pod."), parameters.AT),
            missing=no_pod,
        ),
        Endpoint(
            path="/api/pending",
            handler=handlers.pending,
            about="Why pods are pending: reasons of their last explanations, counted.",
            answer=answers.PendingAnswer,
            parameters=(parameters.AT,),
        ),
        Endpoint(
            path="/api/events",
            handler=handlers.events,
            about="Facts as they stand in the log, newest first.",
            answer=answers.EventsAnswer,
            parameters=(
                _query("kind", "Only facts of this kind of aggregate."),
                _query("id", "Only facts of this aggregate."),
                _query("type", "Only facts of this type."),
                parameters.BEFORE,
                parameters.AFTER,
                parameters.LIMIT_EVENTS,
                parameters.BODIES,
            ),
        ),
        Endpoint(
            path="/api/events/stream",
            handler=handlers.stream,
            about="Facts as they are committed, as server-sent events: `facts` (a list), `skipped` (too many).",
            answer=None,
            parameters=(parameters.AFTER,),
        ),
        Endpoint(
            path="/api/events/{seq}",
            handler=handlers.event,
            about="One fact with its body.",
            answer=answers.EventItem,
            parameters=(parameters.SEQ,),
            missing="No fact is kept at that position.",
        ),
        Endpoint(
            path="/api/objects/{kind}",
            handler=handlers.objects,
            about="States of all aggregates of one kind.",
            answer=answers.ObjectsAnswer,
            parameters=(
                _path("kind", "Kind of the aggregates."),
                _query("after", "Only ids after this one."),
                parameters.LIMIT_OBJECTS,
                parameters.AT,
            ),
        ),
        Endpoint(
            path="/api/objects/{kind}/{id}",
            handler=handlers.object,
            about="State of one aggregate; null when it does not exist at that moment.",
            answer=answers.ObjectAnswer,
            parameters=(
                _path("kind", "Kind of the aggregate."),
                _path("id", "Its id as in the subject."),
                parameters.AT,
            ),
        ),
        Endpoint(
            path="/api/hash",
            handler=handlers.hash,
            about="Canonical hash of the stored state, and the position that it belongs to.",
            answer=StateHash,
        ),
        Endpoint(
            path="/admin/rebuild",
            handler=handlers.rebuild,
            about="Drop what is folded from the facts and fold it again from the first one. Needs a JSON body {}.",
            answer=answers.RebuildAnswer,
            method="POST",
        ),
    )


def routes_of(handlers: Handlers, database: Database) -> list[Route]:
    """Return the routes of the read API for the HTTP server of the service.

    Args:
        handlers: The handlers, which read the database.
        database: The database. Until it is migrated, a missing table is no error.
    """
    endpoints = endpoints_of(handlers)
    document = openapi_document(endpoints)

    async def describe(_request: Request) -> Response:
        return json_answer(document)

    return [
        *(Route(each.path, _guarded(each.handler, database), methods=[each.method]) for each in endpoints),
        Route("/openapi.json", describe, methods=["GET"]),
    ]


def _path(name: str, about: str) -> Parameter:
    return Parameter(name=name, about=about, where="path")


def _query(name: str, about: str, choices: tuple[str, ...] = ()) -> Parameter:
    return Parameter(name=name, about=about, choices=choices)


def _guarded(
    handler: Callable[[Request], Awaitable[Response]], database: Database
) -> Callable[[Request], Awaitable[Response]]:
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

    guarded.__name__ = handler.__name__  # names the handler in the metrics
    return guarded
