"""`koord explain migration`: what a PodMigrationJob did, and what it cost, from the events of the log."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import typer
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol import keys
from koordcore.state import ClusterState
from koordcore.state.migrations import MigrationState
from koordcore.stories.migrations import MigrationStory, migration_story
from koordcore.values import codec

from koordctl.access.log import open_log, wait_for, warn_of_dropped
from koordctl.render.console import Line
from koordctl.render.output import Format, Output, fail, show_story
from koordctl.render.units import duration_text, time_text

_JOBS = "podmigrationjobs"
_STYLES: Final = {
    "succeeded": "green",
    "failed": "red",
    "aborted": "red",
    "eviction-delayed": "yellow",
    "eviction-failed": "red",
    "eviction-withdrawn": "yellow",
    "waits": "yellow",
    "plan-done": "green",
    "plan-rolled-back": "red",
    "plan-incomplete": "red",
}


def migration(
    name: Annotated[str, typer.Argument(help="The PodMigrationJob's name, also of a deleted one.")],
    output: Output = Format.TABLE,
) -> None:
    """Show a migration: why it was asked for, each step with its reason, and what it cost.

    Examples:

      koord explain migration drain-node-1-0a1b2c3d
    """
    if (story := wait_for(migration_of(name))) is None:
        fail(f"there are no facts about a PodMigrationJob {name}: see koord get migrations")
    show_story(codec.to_builtins(story), migration_lines(story), output)


def migration_lines(story: MigrationStory) -> Iterator[Line]:
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


async def migration_of(name: str) -> MigrationStory | None:
    """Return the story of the last migration whose job has this name, also after the job was deleted.

    None if the log has no object of this name.
    """
    async with open_log() as log:
        objects = await log.bus.events.read_aggregate(custom_ref(_JOBS, "", name))
        await warn_of_dropped(log, "this migration", objects)
        observed = [event for stored in objects if isinstance(event := CATALOGUE.read(stored), CustomObjectObserved)]
        if not observed:
            return None
        uid = str(observed[-1].object["metadata"].get("uid", ""))
        facts = await log.bus.events.read_aggregate(AggregateRef("migration", uid))
        state = ClusterState()
        pods: set[str] = set()
        for stored in facts:
            state.apply(stored)
            known = state.of_kind(MigrationState).get(uid)
            if known is not None and known.pod is not None and known.pod.uid:
                pods.add(known.pod.uid)
        for pod in sorted(pods):
            facts = facts + await log.bus.events.read_aggregate(AggregateRef("eviction", pod))
        annotations: Mapping[str, str] = observed[-1].object["metadata"].get("annotations") or {}
        plan = annotations.get(keys.MOVE_PLAN)
        if plan:
            facts = facts + await log.bus.events.read_aggregate(AggregateRef("repack", plan))
        return migration_story(name, uid, facts)
