"""The audit of the descheduler: pages of its modifications, newest first, by pod, node, reason, time and more."""

from typing import Any, Final

import msgspec
from koordcore.stories.modifications import Modification
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

MAX_PAGE: Final = 1_000
_decode = msgspec.json.Decoder(Modification).decode
_CONDITIONS: Final = {
    "node": "node = :node",
    "job": "job = :job",
    "plugin": "plugin = :plugin",
    "action": "action = :action",
    "pod": "(pod = :pod OR uid = :pod OR namespace || '/' || pod = :pod)",
    "reason": "position(lower(:reason) in lower(reasons)) > 0",
    "since": "at >= :since",
    "until": "at <= :until",
}


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
    """

    pod: str = ""
    node: str = ""
    job: str = ""
    plugin: str = ""
    action: str = ""
    reason: str = ""
    since: str = ""
    until: str = ""


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
    """
    position = (await connection.execute(text("SELECT position FROM projection WHERE stream = 'ev'"))).scalar() or 0
    given = {name: value for name, value in msgspec.to_builtins(wanted).items() if value}
    values: dict[str, Any] = {"after": after, "limit": limit, **given}
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
    page = [_decode(row.record) for row in await connection.execute(statement, values)]
    return AuditAnswer(
        position=position,
        complete=complete,
        modifications=page,
        before=page[-1].position if len(page) >= limit else None,
    )
