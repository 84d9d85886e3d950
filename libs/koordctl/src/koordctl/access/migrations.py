"""The facts of a migration, by the name of its job, from the log."""

from collections.abc import Coroutine, Mapping
from typing import Any

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol import keys
from koordcore.state import ClusterState
from koordcore.state.migrations import MigrationState
from koordcore.stories.migrations import MigrationStory, migration_story
from msgspec.structs import replace

from koordctl.access.log import open_log, warn_of_dropped
from koordctl.explain.pod_story import PodStory

_JOBS = "podmigrationjobs"


async def with_cost(life: Coroutine[Any, Any, PodStory]) -> PodStory:
    """Return the story of a pod with the seconds for which its workload missed it, if a migration took the pod.

    Otherwise, the story is returned unchanged.

    Args:
        life: Returns the story of the pod. It is awaited here.

    Raises:
        LogTrouble: The log cannot be reached.
    """
    story = await life
    job = "" if story.disruption is None else story.disruption.job
    migration = await migration_of(job) if job else None
    return story if migration is None else replace(story, missed_seconds=migration.unavailable_seconds)


async def migration_of(name: str) -> MigrationStory | None:
    """Return the story of the last migration whose job has this name, also after the job was deleted.

    None if the log has no object of this name.

    Args:
        name: Name of the PodMigrationJob.
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
