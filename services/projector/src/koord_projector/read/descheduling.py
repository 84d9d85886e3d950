"""What the descheduler did: pages of its modifications, and its rounds as of a moment."""

from typing import Any, Final

import msgspec
from koordcore.events.descheduling import RoundAttempt, RoundEnded
from koordcore.protocol.recommendations import workload_of
from koordcore.stories.modifications import Modification
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from koord_projector.fold.archives import ROUND
from koord_projector.read.moments import Moment

MAX_PAGE: Final = 1_000
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
"""Field of `AuditFilter` -> its condition. A dropped fact of a pod is replaced by the version of its state."""


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Condition on modifications. An empty field matches all.

    Attributes:
        pod: Name, `namespace/name` or uid of the pod.
        node: Node of the pod or of the drain.
        job: Name of the PodMigrationJob.
        plugin: Plugin or controller that decided.
        action: What is changed, see `Modification`.
        reason: Part of the reasons, in upper or lower case.
        since: RFC 3339 time; earlier modifications are left out.
        until: RFC 3339 time; later modifications are left out.
        workload: Workload that controls the pod, as KIND/NAMESPACE/NAME.
    """

    pod: str = ""
    node: str = ""
    job: str = ""
    plugin: str = ""
    action: str = ""
    reason: str = ""
    since: str = ""
    until: str = ""
    workload: str = ""


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


async def page_modifications(
    connection: AsyncConnection, wanted: AuditFilter, *, before: int | None, after: int, limit: int, complete: bool
) -> AuditAnswer:
    """Return a page of modifications.

    Args:
        connection: Read transaction.
        wanted: Condition on the modifications.
        before: Only modifications at a lower position; None: all.
        after: Only modifications at a higher position.
        limit: Largest number of modifications. Those of one fact stay together, so there may be some hundred more.
        complete: Whether the tables are up to date.

    Raises:
        InvalidInput: The workload is not KIND/NAMESPACE/NAME.
    """
    position = (await connection.execute(text("SELECT position FROM projection WHERE stream = 'ev'"))).scalar() or 0
    given = {name: value for name, value in msgspec.to_builtins(wanted).items() if value}
    values: dict[str, Any] = {"after": after, "limit": limit, **given}
    if wanted.workload:
        workload = workload_of(wanted.workload, "workload")
        values |= {"kind": workload.kind, "namespace": workload.namespace, "name": workload.name}
    conditions = ["position > :after", *(_CONDITIONS[name] for name in given)]
    if before is not None:
        conditions.append("position < :before")
        values["before"] = before
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
        complete=complete,
        modifications=page,
        before=page[-1].position if len(page) >= limit else None,
    )


_ROUNDS: Final = text(
    "SELECT occurred_at, actor, based_on, body FROM explanations"
    " WHERE uid = :uid AND occurred_at <= :until ORDER BY occurred_at DESC LIMIT :count"
)
_decode_round = msgspec.json.Decoder(RoundEnded).decode


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


async def list_rounds(connection: AsyncConnection, moment: Moment, *, limit: int) -> RoundsAnswer:
    """Return the newest rounds.

    Args:
        connection: Read transaction.
        moment: Rounds after it are left out.
        limit: Largest number of rounds.
    """
    rows = (await connection.execute(_ROUNDS, {"uid": ROUND, "until": moment.until, "count": limit})).all()
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
