"""The life of a pod as a trace: offsets, times between steps, and the line of each step."""

from koordctl.pod.story import PodStory, StoryEntry
from koordctl.pod.trace import pod_trace, trace_rows

ONE, OTHER = "a" * 32, "b" * 32


def entry(step: str, second: str, by: str, trace: str = ONE, position: int = 0) -> StoryEntry:
    return StoryEntry(step=step, at=f"2026-01-01T00:00:{second}Z", by=f"{by}/x", trace=trace, position=position)


def story(*entries: StoryEntry) -> PodStory:
    return PodStory(namespace="d", name="web", uid="u", status="Running", moments=list(entries))


def test_steps_have_their_offset_and_the_time_before_them() -> None:
    found = pod_trace(
        story(
            entry("submitted", "01.000", "manager"), entry("started", "04.000", "agent"), entry("placed", "02.000", "s")
        )
    )

    steps = [(step.step, step.offset_seconds, step.after_seconds) for step in found.steps]
    assert steps == [("submitted", 0.0, 0.0), ("placed", 1.0, 1.0), ("started", 3.0, 2.0)]
    assert found.trace == ONE


def test_the_timeline_shows_where_the_time_before_a_step_lies() -> None:
    first, second, third = trace_rows(
        pod_trace(
            story(
                entry("submitted", "00.000", "manager"), entry("placed", "03.000", "s"), entry("started", "04.000", "a")
            )
        )
    )

    assert first[4] == "█" + "·" * 39
    assert second[4] == "█" * 30 + "·" * 10
    assert third[4] == "·" * 30 + "█" * 10
    assert (third[0], third[1], third[2], third[3]) == ("4.0 s", "1.0 s", "a", "started")


def test_a_step_of_another_trace_is_named() -> None:
    rows = trace_rows(
        pod_trace(story(entry("submitted", "00.000", "manager", position=7), entry("deleted", "05.000", "m", OTHER)))
    )

    assert [row[5:] for row in rows] == [(7, None), (None, "bbbbbbbb")]


def test_steps_at_one_moment_have_a_line_each() -> None:
    rows = trace_rows(pod_trace(story(entry("submitted", "00.000", "manager"), entry("placed", "00.000", "s"))))

    assert [row[4] for row in rows] == ["█" + "·" * 39] * 2
