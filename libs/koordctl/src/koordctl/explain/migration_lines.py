"""The story of a migration as lines for a terminal: the output of `koord explain migration`. Pure."""

from collections.abc import Iterator
from typing import Final

from koordcore.stories.migrations import MigrationStory

from koordctl.explain.story_text import Line
from koordctl.render.units import duration_text, time_text

_STYLES: Final = {
    "succeeded": "green",
    "failed": "red",
    "aborted": "red",
    "eviction-delayed": "yellow",
    "eviction-failed": "red",
    "waits": "yellow",
    "plan-done": "green",
    "plan-rolled-back": "red",
    "plan-incomplete": "red",
}


def migration_lines(story: MigrationStory) -> Iterator[Line]:
    """Yield the lines that show a migration, oldest event first, and its cost at the end."""
    state = story.state
    pod = "" if state.pod is None else f" of {state.pod.namespace}/{state.pod.name}"
    way = " -> ".join(filter(None, (state.origin, state.progress.node)))
    yield Line(f"Migration {story.job}{pod}: {state.progress.phase or 'Pending'}{f', {way}' if way else ''}", "bold")
    yield Line(f"  uid {story.uid}, pod uid {'unknown' if state.pod is None else state.pod.uid or 'unknown'}")
    for each in story.steps:
        sentence = f"{each.sentence}  " if each.sentence else ""
        text = f"  {time_text(each.at)}  {each.step:<22} {sentence}position {each.position}"
        yield Line(text, _STYLES.get(each.step, ""))
    if story.seconds is not None:
        yield Line(f"  took {duration_text(story.seconds)} after arbitration")
    if story.unavailable_seconds is not None:
        yield Line(f"  its workload missed one pod for {duration_text(story.unavailable_seconds)}")
