"""Handlers of the read API. Each reads one consistent moment from Postgres and states it in the answer."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, Protocol

from koordcore.ports.clock import Clock
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection
from starlette.requests import Request
from starlette.responses import Response

from koord_projector.fold.pods import LONGEST_GANG
from koord_projector.read import answers
from koord_projector.read import pods as pod_queries
from koord_projector.read.cluster import series, sum_nodes
from koord_projector.read.colocation import describe_colocation
from koord_projector.read.descheduling import AuditFilter, list_rounds, page_modifications
from koord_projector.read.endpoint import json_answer, number_of, refusal, text_of
from koord_projector.read.events import EventFilter, find_event, page_events
from koord_projector.read.gangs import list_gangs
from koord_projector.read.hardware import describe_hardware, list_devices
from koord_projector.read.moments import normal_time, resolve
from koord_projector.read.nodes import describe_node, list_nodes, page_reports, pod_usage
from koord_projector.read.objects import aggregates_hash, list_objects, require_kind, state_at
from koord_projector.read.parameters import (
    AFTER,
    BEFORE,
    BODIES,
    LIMIT_AUDIT,
    LIMIT_COLOCATION,
    LIMIT_DEVICES,
    LIMIT_EVENTS,
    LIMIT_GANGS,
    LIMIT_OBJECTS,
    LIMIT_OBSERVATIONS,
    LIMIT_PODS,
    LIMIT_RESERVATIONS,
    LIMIT_ROUNDS,
    LIMIT_SEARCH,
    PHASES,
    POINTS,
    QOS,
    SEQ,
    SINCE,
    UNTIL,
)
from koord_projector.read.reservations import list_reservations
from koord_projector.read.search import search_everything
from koord_projector.store.database import Database

_OLDEST: Final = text("SELECT occurred_at FROM events ORDER BY seq LIMIT 1")


class FoldState(Protocol):
    """Progress of the projector as the read API needs it; `Progress` implements it.

    Attributes:
        head: Position of the newest fact of the log.
        position: Position of the newest committed fact.
        observations: Position up to which observations are archived.
        explanations: Position up to which explanations are archived.
        trouble: Reason why the fold has stopped; "" while it runs.
    """

    head: int
    position: int
    observations: int
    explanations: int
    trouble: str

    def lag_seconds(self, now: datetime) -> float:
        """Return the age in seconds of the newest committed fact if the log has newer facts; else 0."""
        ...


class Handlers:
    """The handlers of the read API, one method for each endpoint.

    Args:
        want_rebuild: Function that requests a rebuild of the tables.
        stream: Handler of the live tail (`live`).
    """

    def __init__(
        self,
        database: Database,
        *,
        cluster: str,
        fold: FoldState,
        clock: Clock,
        want_rebuild: Callable[[], None],
        stream: Callable[[Request], Awaitable[Response]],
    ) -> None:
        self._database = database
        self._cluster = cluster
        self._fold = fold
        self._clock = clock
        self._want_rebuild = want_rebuild
        self.stream = stream

    async def status(self, _request: Request) -> Response:
        """Answer `GET /api/status` with a `StatusAnswer`: the position and the lag of the projector."""
        fold = self._fold
        async with self._database.reading() as connection:
            newest = await resolve(connection, None)
            oldest = (await connection.execute(_OLDEST)).scalar()
        return json_answer(
            answers.StatusAnswer(
                cluster=self._cluster,
                position=newest.position,
                head=max(fold.head, newest.position),
                lag_events=max(0, fold.head - newest.position),
                lag_seconds=fold.lag_seconds(self._clock.now()),
                trouble=fold.trouble,
                observations=fold.observations,
                explanations=fold.explanations,
                first_at=oldest or "",
                last_at=newest.occurred_at,
                now=rfc3339(self._clock.now()),
            )
        )

    async def cluster(self, request: Request) -> Response:
        """Answer `GET /api/cluster` with a `ClusterAnswer`: totals of the cluster at the moment of parameter `at`."""
        at = text_of(request.query_params, "at")
        async with self._database.reading() as connection:
            moment = await resolve(connection, at)
            nodes = await list_nodes(connection, moment, self._clock.now())
            pods = await pod_queries.pod_counts(connection, moment)
        return json_answer(
            answers.ClusterAnswer(
                moment=moment,
                nodes=len(nodes),
                nodes_reporting=sum(node.reported_at is not None and node.silent_seconds is None for node in nodes),
                nodes_silent=sum(node.silent_seconds is not None for node in nodes),
                pods={phase: pods.get(phase, 0) for phase in PHASES},
                **sum_nodes(nodes),
            )
        )

    async def series(self, request: Request) -> Response:
        """Answer `GET /api/series` with a `SeriesAnswer`: totals of the cluster over time."""
        query = request.query_params
        since, until = number_of(query, SINCE), number_of(query, UNTIL)
        if since is not None and until is not None and since > until:
            raise InvalidInput("not before `since`", until, "until")
        points = number_of(query, POINTS) or 300
        async with self._database.reading() as connection:
            return json_answer(await series(connection, since=since, until=until, points=points))

    async def nodes(self, request: Request) -> Response:
        """Answer `GET /api/nodes` with a `NodesAnswer`: the nodes at the moment of parameter `at`."""
        at = text_of(request.query_params, "at")
        async with self._database.reading() as connection:
            moment = await resolve(connection, at)
            nodes = await list_nodes(connection, moment, self._clock.now())
            return json_answer(answers.NodesAnswer(moment=moment, nodes=nodes))

    async def node(self, request: Request) -> Response:
        """Answer `GET /api/nodes/{name}` with a `NodeAnswer`; 404 if the node does not exist at the moment."""
        name, at = text_of(request.path_params, "name"), text_of(request.query_params, "at")
        async with self._database.reading() as connection:
            found = await describe_node(connection, await resolve(connection, at), name, self._clock.now())
        return json_answer(found) if found else refusal(404, "there is no such node at that moment")

    async def hardware(self, request: Request) -> Response:
        """Answer `GET /api/nodes/{name}/hardware` with a `HardwareAnswer`; 404 if the node does not exist."""
        name, at = text_of(request.path_params, "name"), text_of(request.query_params, "at")
        async with self._database.reading() as connection:
            found = await describe_hardware(connection, await resolve(connection, at), name)
        return json_answer(found) if found else refusal(404, "there is no such node at that moment")

    async def devices(self, request: Request) -> Response:
        """Answer `GET /api/devices` with a `DevicesAnswer`: nodes with devices, and the pods that hold them."""
        query = request.query_params
        after, limit, at = text_of(query, "after"), number_of(query, LIMIT_DEVICES) or 200, text_of(query, "at")
        async with self._database.reading() as connection:
            moment = await resolve(connection, at)
            return json_answer(await list_devices(connection, moment, after=after, limit=limit))

    async def reservations(self, request: Request) -> Response:
        """Answer `GET /api/reservations` with a `ReservationsAnswer`: Reservations, and the pods that use them."""
        query = request.query_params
        after, limit = text_of(query, "after"), number_of(query, LIMIT_RESERVATIONS) or 200
        name, at = text_of(query, "name"), text_of(query, "at")
        async with self._database.reading() as connection:
            moment = await resolve(connection, at)
            return json_answer(await list_reservations(connection, moment, name=name, after=after, limit=limit))

    async def gangs(self, request: Request) -> Response:
        """Answer `GET /api/gangs` with a `GangsAnswer`: gangs with the phases of their members."""
        query = request.query_params
        after, limit, at = text_of(query, "after"), number_of(query, LIMIT_GANGS) or 200, text_of(query, "at")
        async with self._database.reading() as connection:
            moment = await resolve(connection, at)
            return json_answer(await list_gangs(connection, moment, after=after, limit=limit))

    async def search(self, request: Request) -> Response:
        """Answer `GET /api/search` with a `SearchAnswer`: pods, nodes, other objects and facts with this text."""
        query = request.query_params
        wanted, at = text_of(query, "text").strip(), text_of(query, "at")
        limit = number_of(query, LIMIT_SEARCH) or 20
        async with self._database.reading() as connection:
            moment = await resolve(connection, at)
            return json_answer(await search_everything(connection, moment, wanted, limit=limit))

    async def colocation(self, request: Request) -> Response:
        """Answer `GET /api/colocation` with a `ColocationAnswer`: suppressed nodes, contentions, evictions."""
        query = request.query_params
        limit, at = number_of(query, LIMIT_COLOCATION) or 100, text_of(query, "at")
        async with self._database.reading() as connection:
            moment = await resolve(connection, at)
            return json_answer(await describe_colocation(connection, moment, now=self._clock.now(), limit=limit))

    async def audit(self, request: Request) -> Response:
        """Answer `GET /api/audit` with an `AuditAnswer`: a page of the descheduler's modifications."""
        query = request.query_params
        times = {name: text_of(query, name) for name in ("since", "until")}
        wanted = AuditFilter(
            **{name: text_of(query, name) for name in ("pod", "node", "workload", "job", "plugin", "action", "reason")},
            **{name: normal_time(given, name) if given else "" for name, given in times.items()},
        )
        before, after = number_of(query, BEFORE), number_of(query, AFTER) or 0
        async with self._database.reading() as connection:
            page = await page_modifications(
                connection,
                wanted,
                before=before,
                after=after,
                limit=number_of(query, LIMIT_AUDIT) or 100,
                complete=not self._fold.trouble,
            )
        return json_answer(page)

    async def observations(self, request: Request) -> Response:
        """Answer `GET /api/observations` with a `ReportsAnswer`: a page of the archived usage reports of all nodes."""
        query = request.query_params
        given, after = text_of(query, "since"), text_of(query, "after")
        since, limit = normal_time(given, "since") if given else "", number_of(query, LIMIT_OBSERVATIONS) or 100
        async with self._database.reading() as connection:
            return json_answer(await page_reports(connection, since=since, after=after, limit=limit))

    async def rounds(self, request: Request) -> Response:
        """Answer `GET /api/rounds` with a `RoundsAnswer`: the newest rounds of the descheduler."""
        query = request.query_params
        limit, at = number_of(query, LIMIT_ROUNDS) or 60, text_of(query, "at")
        async with self._database.reading() as connection:
            moment = await resolve(connection, at)
            return json_answer(await list_rounds(connection, moment, limit=limit))

    async def pods(self, request: Request) -> Response:
        """Answer `GET /api/pods` with a `PodsAnswer`: a page of the pods that match the parameters."""
        query = request.query_params
        wanted = pod_queries.PodFilter(
            namespace=text_of(query, "namespace"),
            phase=text_of(query, "phase", PHASES),
            qos=text_of(query, "qos", QOS),
            node=text_of(query, "node"),
            gang=text_of(query, "gang")[:LONGEST_GANG],
            contains=text_of(query, "text"),
        )
        limit, cursor, at = number_of(query, LIMIT_PODS) or 100, text_of(query, "cursor"), text_of(query, "at")
        async with self._database.reading() as connection:
            moment = await resolve(connection, at)
            return json_answer(await pod_queries.list_pods(connection, moment, wanted, limit=limit, cursor=cursor))

    async def pod(self, request: Request) -> Response:
        """Answer `GET /api/pods/{uid}` with a `PodAnswer`: one pod and its life; 404 if there was no such pod."""
        uid, at = text_of(request.path_params, "uid"), text_of(request.query_params, "at")
        async with self._database.reading() as connection:
            return await _pod_answer(connection, uid, at)

    async def pod_by_name(self, request: Request) -> Response:
        """Answer `GET /api/namespaces/{namespace}/pods/{name}` with a `PodAnswer` about the newest pod of this name.

        The status is 404 if there was no such pod up to the moment.
        """
        namespace, name = text_of(request.path_params, "namespace"), text_of(request.path_params, "name")
        at = text_of(request.query_params, "at")
        async with self._database.reading() as connection:
            uid = await pod_queries.find_uid(connection, await resolve(connection, at), namespace, name)
            return await _pod_answer(connection, uid or "", at)

    async def pending(self, request: Request) -> Response:
        """Answer `GET /api/pending` with a `PendingAnswer`: the reasons why pods are pending."""
        at = text_of(request.query_params, "at")
        async with self._database.reading() as connection:
            return json_answer(await pod_queries.explain_pending(connection, await resolve(connection, at)))

    async def events(self, request: Request) -> Response:
        """Answer `GET /api/events` with an `EventsAnswer`: a page of the facts that match the parameters."""
        query = request.query_params
        wanted = EventFilter(kind=text_of(query, "kind"), id=text_of(query, "id"), type=text_of(query, "type"))
        before, after = number_of(query, BEFORE), number_of(query, AFTER) or 0
        limit = number_of(query, LIMIT_EVENTS) or 100
        bodies = text_of(query, "bodies", BODIES.choices) == "true"
        async with self._database.reading() as connection:
            page = await page_events(connection, wanted, before=before, after=after, limit=limit, bodies=bodies)
        return json_answer(page)

    async def event(self, request: Request) -> Response:
        """Answer `GET /api/events/{seq}` with an `EventItem`: one fact with its body; 404 if there is none."""
        seq = number_of(request.path_params, SEQ)
        async with self._database.reading() as connection:
            found = await find_event(connection, seq or 0)
        return json_answer(found) if found else refusal(404, "no fact is kept at that position")

    async def objects(self, request: Request) -> Response:
        """Answer `GET /api/objects/{kind}` with an `ObjectsAnswer`: a page of the aggregates of one kind."""
        query = request.query_params
        kind = require_kind(text_of(request.path_params, "kind"))
        after, limit, at = text_of(query, "after"), number_of(query, LIMIT_OBJECTS) or 100, text_of(query, "at")
        async with self._database.reading() as connection:
            moment = await resolve(connection, at)
            return json_answer(await list_objects(connection, moment, kind, after=after, limit=limit))

    async def object(self, request: Request) -> Response:
        """Answer `GET /api/objects/{kind}/{id}` with an `ObjectAnswer`: the state of one aggregate at the moment."""
        kind, id_ = require_kind(text_of(request.path_params, "kind")), text_of(request.path_params, "id")
        at = text_of(request.query_params, "at")
        async with self._database.reading() as connection:
            moment = await resolve(connection, at)
            state = await state_at(connection, moment, kind, id_)
        return json_answer(answers.ObjectAnswer(moment=moment, kind=kind, id=id_, state=state))

    async def hash(self, _request: Request) -> Response:
        """Answer `GET /api/hash` with a `StateHash`: the hash of all aggregates in the tables, and their position."""
        async with self._database.reading() as connection:
            return json_answer(await aggregates_hash(connection))

    async def rebuild(self, request: Request) -> Response:
        """Answer `POST /admin/rebuild`: request to delete the tables and fold the log again. The status is 202.

        It requires a JSON content type, which a page of another site cannot send without permission.
        """
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return refusal(415, "the content type must be application/json")
        self._want_rebuild()
        return json_answer(answers.RebuildAnswer(True), 202)


async def _pod_answer(connection: AsyncConnection, uid: str, at: str) -> Response:
    moment = await resolve(connection, at)
    pod = await pod_queries.find_pod(connection, moment, uid) if uid else None
    if pod is None:
        return refusal(404, "there was no such pod up to that moment")
    spec = await state_at(connection, moment, "podspec", uid)
    usage = await pod_usage(connection, moment, pod.node, uid, pod.placed_at) if pod.node else []
    return json_answer(
        answers.PodAnswer(
            moment=moment,
            pod=pod,
            object=None if spec is None else spec.get("object"),
            timeline=await pod_queries.pod_life(connection, moment, uid),
            usage=usage,
        )
    )
