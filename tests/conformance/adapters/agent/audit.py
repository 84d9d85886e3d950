"""Vectors of the agent's audit log: paging, the verbosity filter, rotation (agent spec, 19)."""

from __future__ import annotations

import itertools
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from conformance.registry import Json, adapter
from koord_agent.domain.reporting.audit import (
    DEFAULT_PAGE,
    LARGEST_PAGE,
    READER_IDLE_SECONDS,
    READERS,
    AuditEvent,
    BadRequest,
    is_written,
    rotate,
)
from koord_agent.shell.store.audit_log import AuditLog, AuditQueries, UnknownToken


@adapter("agent.audit_query", exact_text=("events", "renamed_to", "removed"))
def audit_query(given: dict[str, Json]) -> dict[str, Json]:
    """Pages of a stored log, what the filter lets through, or the plan of a rotation."""
    match given["op"]:
        case "query":
            return {"responses": _responses(given)}
        case "filter":
            return {"written": [v for v in given["events"] if is_written(v, given["verbose"])]}
        case "rotate":
            plan = rotate(given["existing"], given["timestamp"], given["max_disk_space_mb"])
            return {"renamed_to": plan.rename_to, "removed": list(plan.remove)}
        case other:
            raise AssertionError(f"no such op: {other}")


def _responses(given: dict[str, Json]) -> list[Json]:
    def limit(default: float, *names: str) -> float:
        return next((given[name] for name in names if name in given), default)

    with tempfile.TemporaryDirectory() as folder:
        log = AuditLog(Path(folder), now=lambda: datetime(2024, 5, 1, tzinfo=UTC))
        for stored in given["stored"]:
            log.write(AuditEvent(name=stored), 0, 0.0)
        log.close()
        tokens = (f"t{number}" for number in itertools.count())
        queries = AuditQueries(
            Path(folder),
            readers=int(limit(READERS, "max_readers", "max_concurrent_readers")),
            default_page=int(limit(DEFAULT_PAGE, "default_limit")),
            largest_page=int(limit(LARGEST_PAGE, "max_limit", "max_events_limit")),
            idle_seconds=limit(READER_IDLE_SECONDS, "ttl_seconds", "idle_seconds"),
            new_token=lambda: next(tokens),
        )
        given_tokens: list[str] = []
        answers: list[Json] = []
        for request in given["requests"]:
            answer, token = _answer(queries, request, given_tokens)
            answers.append(answer)
            given_tokens.append(token)
        return answers


def _answer(queries: AuditQueries, request: dict[str, Json], tokens: list[str]) -> tuple[Json, str]:
    """One answer, and the token under which its reader goes on ("" = none)."""
    size: Json = request.get("size")
    index: int | None = request.get("token")
    token = "" if index is None else (tokens[index] if index < len(tokens) else "unknown") or "closed"
    try:
        page = queries.page("" if size is None else str(size), token, float(request.get("at_seconds") or 0))
    except BadRequest:
        return {"http": 400}, ""
    except UnknownToken:
        return {"http": 409}, ""
    answer = {"http": 200, "events": [event.name for event in page.events], "has_next": bool(page.next_token)}
    return answer, page.next_token
