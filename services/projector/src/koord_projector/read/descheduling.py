"""What the descheduler did: pages of its modifications, and its rounds as of a moment."""

from typing import Annotated, Any, Final

import msgspec
from koordcore.events.descheduling import RoundAttempt, RoundEnded
from koordcore.protocol.recommendations import workload_of
from koordcore.stories.modifications import Modification
from sqlalchemy import text

from koord_projector.fold.archives import ROUND
from koord_projector.read.endpoint import After, At, Before, Query, Reading, Text, about
from koord_projector.read.moments import Moment, normal_time

_decode_modification = msgspec.json.Decoder(Modification).decode
_CONDITIONS: Final = {
    "node": "node = :node",
    "job": "job = :job",
    "plugin": "plugin = :plugin",
    "action": "action = :action",
    "pod": "(pod = :pod OR uid = :pod OR namespace || '/' || pod = :pod)",
    "reason": "position(lower(:reason) in lower(reasons)) > 0",
    "since": "at >= :since",
    "until": "at <= :until",
    "workload": """(namespace = :namespace AND EXISTS (
        SELECT 1 FROM (
            SELECT CAST(body AS jsonb) AS pod FROM events
             WHERE kind = 'podspec' AND id = modifications.uid AND type = 'PodSpecAdded'
            UNION ALL
            SELECT CAST(state AS jsonb) FROM aggregate_versions WHERE kind = 'podspec' AND id = modifications.uid
        ) AS known,
        jsonb_to_recordset(pod #> '{object,metadata,ownerReferences}')
            AS owner(kind text, name text, controller boolean)
         WHERE owner.controller AND (
               (owner.kind = :kind AND owner.name = :name)
               OR (CAST(:kind AS text) = 'Deployment' AND owner.kind = 'ReplicaSet'
                   AND owner.name = CAST(:name AS text) || '-' ||
                       (pod #>> '{object,metadata,labels,pod-template-hash}'))
         )
    ))""",
}
"""Field of `AuditQuery` -> its condition. A dropped fact of a pod is replaced by the version of its state."""


class AuditQuery(Query, frozen=True, kw_only=True):
    """An empty field matches all."""

    pod: Annotated[Text, about("Only this pod: its name, namespace/name, or uid.")] = ""
    node: Annotated[Text, about("Only pods and drains of this node.")] = ""
    workload: Annotated[Text, about("Only pods of this workload, as KIND/NAMESPACE/NAME.")] = ""
    job: Annotated[Text, about("Only this PodMigrationJob.")] = ""
    plugin: Annotated[Text, about("Only this plugin or controller.")] = ""
    action: Annotated[Text, about("Only this action.")] = ""
    reason: Annotated[Text, about("Only with this text in the reasons.")] = ""  # in upper or lower case
    since: Annotated[Text, about("Only from this RFC 3339 time on.")] = ""
    until: Annotated[Text, about("Only up to this RFC 3339 time.")] = ""
    before: Before | None = None
    after: After = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000), about("Modifications per page.")] = 100


class AuditAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A page of modifications, newest first.

    Attributes:
        position: Position of the newest committed fact.
        complete: Whether the tables contain all modifications up to it. False while they are made again.
        before: Value of the parameter `before` for the next page, which may be empty; null if there is none.
    """

    position: int
    complete: bool
    modifications: list[Modification]
    before: int | None


async def read_audit(reading: Reading, query: AuditQuery) -> AuditAnswer:
    """Modifications of one fact stay together, so there may be some hundred more than `limit`."""
    connection, limit = reading.connection, query.limit
    given = {name: value for name in _CONDITIONS if (value := getattr(query, name))}
    given |= {name: normal_time(given[name], name) for name in ("since", "until") if name in given}
    position = (await connection.execute(text("SELECT position FROM projection WHERE stream = 'ev'"))).scalar() or 0
    values: dict[str, Any] = {"after": query.after, "limit": limit, **given}
    if query.workload:
        workload = workload_of(query.workload, "workload")
        values |= {"kind": workload.kind, "namespace": workload.namespace, "name": workload.name}
    conditions = ["position > :after", *(_CONDITIONS[name] for name in given)]
    if query.before is not None:
        conditions.append("position < :before")
        values["before"] = query.before
    statement = text(
        f"""
        SELECT record FROM (
            SELECT position, number, record FROM modifications
             WHERE {" AND ".join(conditions)}
             ORDER BY position DESC FETCH FIRST (:limit) ROWS WITH TIES
        ) AS page ORDER BY position DESC, number DESC
        """  # noqa: S608  constants
    )
    page = [_decode_modification(row.record) for row in await connection.execute(statement, values)]
    return AuditAnswer(
        position=position,
        complete=not reading.progress.trouble,
        modifications=page,
        before=page[-1].position if len(page) >= limit else None,
    )


_ROUNDS: Final = text(
    "SELECT occurred_at, actor, based_on, body FROM explanations"
    " WHERE uid = :uid AND based_on <= :based_until ORDER BY occurred_at DESC LIMIT :count"
)
_decode_round = msgspec.json.Decoder(RoundEnded).decode


class RoundsQuery(Query, frozen=True, kw_only=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=500), about("Rounds.")] = 60
    at: At = ""


class RoundItem(msgspec.Struct, frozen=True, kw_only=True):
    """One round of the descheduler in a list.

    Attributes:
        occurred_at: RFC 3339 time of its end.
        actor: Instance that ran it.
        based_on: Position of the log on which it was based.
        seconds: Duration of its decisions, in seconds of the host.
        under: Number of nodes that could take pods.
        over: Number of nodes that used too much.
        results: Result of an attempt -> number of pods.
        attempts: Pods that plugins chose.
    """

    occurred_at: str
    actor: str
    based_on: int
    seconds: float
    under: int
    over: int
    results: dict[str, int]
    attempts: list[RoundAttempt]


class RoundsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds of the descheduler up to one moment.

    Attributes:
        round: The newest round in full; null if there was none.
        rounds: The newest rounds, newest first.
    """

    moment: Moment
    round: RoundEnded | None
    rounds: list[RoundItem]


async def read_rounds(reading: Reading, query: RoundsQuery) -> RoundsAnswer:
    moment = reading.moment
    asked = {"uid": ROUND, "based_until": moment.based_until, "count": query.limit}
    rows = (await reading.connection.execute(_ROUNDS, asked)).all()
    rounds = [_decode_round(row.body) for row in rows]
    return RoundsAnswer(
        moment=moment,
        round=rounds[0] if rounds else None,
        rounds=[
            RoundItem(
                occurred_at=row.occurred_at,
                actor=row.actor,
                based_on=row.based_on,
                seconds=each.seconds,
                under=sum(len(pool.under) for pool in each.classified),
                over=sum(len(pool.over) for pool in each.classified),
                results=each.results,
                attempts=each.attempts,
            )
            for row, each in zip(rows, rounds, strict=True)
        ],
    )
