"""`koord events`: print the facts of the log, also as they are appended."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import typer
from koordcore.events.envelope import StoredEvent
from koordcore.stories.sentences import sentence_of
from koordcore.values.duration import parse_seconds
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339

from koordctl.access.clock import run_clock
from koordctl.access.log import OpenLog, open_log, wait_for
from koordctl.access.times import first_at, given_position
from koordctl.kind_words import WORDS
from koordctl.render.output import console, errors, fail, write_json_line
from koordctl.render.units import time_text

SHOWN = 20


def events(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until Ctrl-C.")] = False,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", "-k", help="Aggregate kinds, e.g. pod, node, nodepolicy; repeatable.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            help="Position, RFC 3339 time, or duration before now on the run's clock (10m); default: the last 20.",
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", help="text: a sentence for each fact; json: one object per line, with all its values."
        ),
    ] = "text",
) -> None:
    """Show facts of the log, and follow it.

    Examples:

      koord events --follow

      koord events --kind pod --since 10m

      koord events --since 1200 -o json | jq .type
    """
    kinds = aggregates_named(kind) if kind else None
    if output not in ("text", "json"):
        fail(f"-o must be text or json, got {output!r}", status=2)
    wait_for(_show(follow, kinds, since, as_json=output == "json"))


def aggregates_named(words: Sequence[str]) -> list[str]:
    """The kinds of aggregates that words such as `pod`, `pods` or `po` name. Another word ends the command."""
    from koordcore.state.registry import STATE_TYPES

    kinds = [word if word in STATE_TYPES else WORDS.get(word.lower(), word) for word in words]
    if unknown := sorted(set(kinds) - set(STATE_TYPES)):
        fail(f"unknown kind {', '.join(unknown)}; known: {', '.join(STATE_TYPES)}", status=2)
    return kinds


async def _show(follow: bool, kinds: list[str] | None, since: str | None, *, as_json: bool) -> None:
    async with open_log() as log:
        head = await log.bus.events.head()
        # who follows may wait for what is not there yet
        last = sys.maxsize if follow else head.last_seq
        newest = max(head.last_seq - SHOWN, head.first_seq - 1)
        after = max(newest if since is None else await _position(log, since, last) - 1, 0)
        batches = (
            log.bus.events.follow(after, kinds=kinds)
            if follow
            else log.bus.events.history(after, head.last_seq, kinds=kinds)
        )
        found = False
        async for batch in batches:
            found = True
            for stored in batch:
                _print(stored, as_json=as_json)
            sys.stdout.flush()
        if not found:
            errors.print("no events found")


async def _position(log: OpenLog, text: str, last: int) -> int:
    """The first position to show for the value of `--since`: a position, a time, or a duration before now."""
    position = given_position("--since", text, last)
    if position is not None:
        return position
    try:
        if text[:1].isdigit() and "T" in text:
            moment = text
        else:
            moment = rfc3339(datetime.fromtimestamp(run_clock().unix() - parse_seconds(text), UTC))
        return await first_at(log, moment)
    except (InvalidInput, ValueError):
        fail(f"--since must be a position, an RFC 3339 time or a duration such as 10m, got {text!r}", status=2)


def _print(stored: StoredEvent, *, as_json: bool) -> None:
    if as_json:
        line = {
            "position": stored.seq,
            "type": stored.type,
            "kind": stored.ref.kind,
            "id": stored.ref.id,
            "at": stored.occurred_at,
            "actor": stored.actor,
            "id_of_cause": stored.causation_id,
            "traceparent": stored.traceparent,
            "body": msgspec.json.decode(stored.body),
        }
        write_json_line(line)
        return
    what = f"{stored.seq:>8}  {time_text(stored.occurred_at)}  {stored.type:<24}"
    console.print(f"{what}  {sentence_of(stored)}", soft_wrap=True)
