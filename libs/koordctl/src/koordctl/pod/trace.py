"""`koord trace pod`: the life of a pod as one trace, with when each service did its step, and the time before it."""

from __future__ import annotations

import os
from typing import Annotated, Final

import msgspec
import typer

from koordctl.access.clients import meant_elsewhere, uid_of_pod
from koordctl.access.log import wait_for
from koordctl.kind_words import KindGroup
from koordctl.pod.explain import life_of_pod
from koordctl.pod.story import PodStory
from koordctl.render.output import Format, Output, console, fail, show_document, show_table
from koordctl.render.units import duration_text, seconds_between

COLUMNS: Final = ("offset", "after", "by", "step", "timeline", "position", "trace")
_WIDTH: Final = 40
_SHORT: Final = 8


class TraceStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    step: str  # Name of the step, such as `placed`
    by: str  # Service and instance
    offset_seconds: float  # Time since the first step
    after_seconds: float  # Time since the step before
    position: int = 0  # Position in the log; 0 for an explanation, which has none
    trace: str = ""  # Trace id of its event; "" if the event has none


class PodTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The steps in the life of a pod, in the order of time."""

    namespace: str
    name: str
    uid: str
    trace: str  # Trace id of the first event that has one; "" without tracing
    steps: list[TraceStep]


def pod_trace(story: PodStory) -> PodTrace:
    """The life must have at least one step."""
    moments = sorted(story.moments, key=lambda moment: moment.at)
    steps: list[TraceStep] = []
    before = moments[0].at
    for moment in moments:
        steps.append(
            TraceStep(
                step=moment.step,
                by=moment.by,
                offset_seconds=seconds_between(moments[0].at, moment.at),
                after_seconds=seconds_between(before, moment.at),
                position=moment.position,
                trace=moment.trace,
            )
        )
        before = moment.at
    trace = next((step.trace for step in steps if step.trace), "")
    return PodTrace(namespace=story.namespace, name=story.name, uid=story.uid, trace=trace, steps=steps)


def trace_rows(found: PodTrace) -> list[tuple[object, ...]]:
    """Rows with `COLUMNS`. A trace id is named where it differs from that of the pod."""
    whole = found.steps[-1].offset_seconds
    return [
        (
            duration_text(step.offset_seconds),
            duration_text(step.after_seconds),
            step.by.partition("/")[0],
            step.step,
            _bar(step, whole),
            step.position or None,
            None if step.trace in ("", found.trace) else step.trace[:_SHORT],
        )
        for step in found.steps
    ]


def _bar(step: TraceStep, whole: float) -> str:
    """Where the time before a step lies in the whole, as a line of at most `_WIDTH` characters."""
    scale = _WIDTH / whole if whole else 0.0
    begin = int((step.offset_seconds - step.after_seconds) * scale)
    end = min(_WIDTH, max(begin + 1, round(step.offset_seconds * scale)))
    begin = min(begin, end - 1)
    return f"{'·' * begin}{'█' * (end - begin)}{'·' * (_WIDTH - end)}"


app = typer.Typer(cls=KindGroup, help="Show the life of a pod as one trace over all services.", no_args_is_help=True)


@app.callback()
def trace() -> None:
    """Show the life of a pod as one trace over all services."""


@app.command()
def pod(
    name: Annotated[str, typer.Argument(help="The pod's name.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    uid: Annotated[str | None, typer.Option("--uid", help="Uid of a pod that is deleted.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """Show when each service did its step for a pod, and the time before the step.

    The times are those of the events in the log. If KOORD_JAEGER is the address of Jaeger, its page of the trace is
    named, too.

    Examples:

      koord trace pod web

      koord trace pod web -n shop -o json
    """
    known = uid or uid_of_pod(namespace, name)
    story = None if known is None else wait_for(life_of_pod(known, None, by_name=uid is None))
    if story is None or not story.moments:
        fail(
            f"no pod has uid {known}"
            if known is not None
            else f"there is no pod {namespace}/{name} and there never was one{meant_elsewhere(name, namespace)}"
        )
    found = pod_trace(story)
    if output is not Format.TABLE:
        show_document(msgspec.to_builtins(found), output)
        return
    whole = duration_text(found.steps[-1].offset_seconds)
    console.print(f"Pod {found.namespace}/{found.name}: {len(found.steps)} steps in {whole}")
    console.print(f"  trace {found.trace or '- (no tracing)'}")
    jaeger = os.environ.get("KOORD_JAEGER", "").rstrip("/")
    if jaeger and found.trace:
        console.print(f"  {jaeger}/trace/{found.trace}", soft_wrap=True)
    show_table(COLUMNS, trace_rows(found))
