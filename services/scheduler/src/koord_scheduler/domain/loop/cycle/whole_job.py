"""Places a planned job in one cycle: every member is assumed and permitted, or none.

Source: scheduler-core spec, 12.1; `plugins.gang.job_plan` has the order of the steps
"""

from collections.abc import Callable

from koordcore.events.envelope import BasedOn

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.framework.extension_points import PERMIT
from koord_scheduler.domain.framework.outcomes import Allow, Rejection
from koord_scheduler.domain.loop.commit.work import Placement
from koord_scheduler.domain.loop.cycle.attempt import Attempt, Found, NotFound, WholeJob
from koord_scheduler.domain.loop.queue.queued_pod import QueuedPod
from koord_scheduler.domain.loop.state.state import SchedulerState
from koord_scheduler.domain.plugins.gang.job_plan import JobFailed, PlannedPod, assume_all, permit_all
from koord_scheduler.domain.plugins.gang.round import JobAttempt

Assume = Callable[[PodRecord, QueuedPod, Found], Placement | Rejection]
"""A function that lets all plugins reserve for the pod and counts it on its node."""


def place_whole_job(
    state: SchedulerState, trigger: QueuedPod, job: WholeJob, now: float, assume: Assume
) -> tuple[list[Placement], tuple[str, ...]] | JobFailed:
    """Reserve and assume all members of a planned job on their nodes, or none. `trigger`: the member whose attempt made
    the plan. Returns (placements in the order in which they were assumed, uids of pods at Permit that are placed with
    them).
    """
    works: dict[str, Placement] = {}

    def attempt(planned: PlannedPod) -> str | None:
        pod, known = state.pods[planned.uid], state.queue.get(planned.uid)
        if known is None:
            return f"pod {planned.key} is not in the queue"
        queued = known if planned.uid == trigger.uid else state.queue.take(planned.uid, like=trigger.uid)
        based_on = BasedOn(state.log.position, state.log.observed)
        found = Attempt(state, pod, queued.subject, now, may_preempt=False).run(based_on)
        if isinstance(found, Found):
            work = assume(pod, queued, found)
            if isinstance(work, Rejection):
                state.queue.retry_now(planned.uid)
                return work.message
            works[planned.uid] = work
            return None
        state.queue.retry_now(planned.uid)
        return found.message if isinstance(found, NotFound) else "a job within a job"

    planned = [_planned(state, uid, node) for uid, node in job.nodes.items()]
    assumed = assume_all(planned, _least(state, trigger.uid), attempt)
    outcome = assumed if isinstance(assumed, JobFailed) else _permit(state, job.plugin, assumed.pods)
    gang = state.books.gangs.roster.gang_of(trigger.uid)
    succeeded = not isinstance(outcome, JobFailed)
    attempted = JobAttempt(
        "" if gang is None else gang.id,
        is_preemption=False,
        succeeded=succeeded,
        pods=len(job.nodes),
        nodes=len(set(job.nodes.values())),
    )
    state.reports.job_attempts.append(attempted)
    if isinstance(outcome, JobFailed):
        state.assumed.reject(job.plugin, outcome.rejected, outcome.message)
        state.assumed.forget(works[each.uid] for each in outcome.undo)
        return outcome
    return list(works.values()), outcome


def _permit(state: SchedulerState, planner: str, pods: tuple[PlannedPod, ...]) -> tuple[str, ...] | JobFailed:
    """Permit all members. The plugin that planned the job is asked last, because its permission cannot be undone."""
    for each in pods:
        pod = state.pods[each.uid]
        for plugin in state.frameworks.framework_of(pod).plugins_for(pod).at(PERMIT):
            if plugin.name != planner and not isinstance(answer := plugin.permit(pod, each.node), Allow):
                return JobFailed(f"job failed due to {plugin.name} at Permit: {answer}", tuple(reversed(pods)))
    released = permit_all(state.books.gangs, pods)
    if isinstance(released, JobFailed):
        return released
    state.queue.activate(released.consequences.activate)
    return released.consequences.allowed


def _planned(state: SchedulerState, uid: str, node: str) -> PlannedPod:
    pod = state.pods[uid]
    is_going = pod.pod is None or pod.pod.metadata.deletion_timestamp is not None
    is_done = is_going or bool(pod.node or pod.bound_node or pod.work_node)
    return PlannedPod(uid=uid, key=f"{pod.namespace}/{pod.name}", node=node, is_done=is_done)


def _least(state: SchedulerState, uid: str) -> int:
    """Return the number of further members that the gangs of the pod's group need, besides those with nodes."""
    roster = state.books.gangs.roster
    gang = roster.gang_of(uid)
    if gang is None or gang.group is None:
        return 1
    gangs = [each for each in roster.gangs_of(gang.group) if each.parameters is not None]
    return sum(
        max(0, each.parameters.min_members - len(each.waiting) - len(each.bound))
        for each in gangs
        if each.parameters is not None
    )
