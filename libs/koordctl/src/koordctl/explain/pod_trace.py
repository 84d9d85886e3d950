"""The life of a pod as one trace: when each service did its step, and how long the step before it lasted."""

from typing import Final

import msgspec

from koordctl.explain.pod_story import PodStory
from koordctl.render.units import duration_text, seconds_between

COLUMNS: Final = ("offset", "after", "by", "step", "timeline", "position", "trace")
_WIDTH: Final = 40
_SHORT: Final = 8


class TraceStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step in the life of a pod.

    Attributes:
        step: Name of the step, such as `placed`.
        by: Service and instance.
        offset_seconds: Time since the first step.
        after_seconds: Time since the step before.
        position: Position in the log; 0 for an explanation, which has none.
        trace: Trace id of its event; "" if the event has none.
    """

    step: str
    by: str
    offset_seconds: float
    after_seconds: float
    position: int = 0
    trace: str = ""


class PodTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The steps in the life of a pod, in the order of time.

    Attributes:
        trace: Trace id of the first event that has one; "" without tracing.
    """

    namespace: str
    name: str
    uid: str
    trace: str
    steps: list[TraceStep]


def pod_trace(story: PodStory) -> PodTrace:
    """Return the trace of a pod whose life has at least one step."""
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
    """Return the rows of a table with `COLUMNS`. A trace id is named where it differs from that of the pod."""
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
    """Return where the time before a step lies in the whole, as a line of at most `_WIDTH` characters."""
    scale = _WIDTH / whole if whole else 0.0
    begin = int((step.offset_seconds - step.after_seconds) * scale)
    end = min(_WIDTH, max(begin + 1, round(step.offset_seconds * scale)))
    begin = min(begin, end - 1)
    return f"{'·' * begin}{'█' * (end - begin)}{'·' * (_WIDTH - end)}"
