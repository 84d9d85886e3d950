"""PodLifeTime: evict pods that are too old, or too long in a state.

Source:
    descheduler spec, 10.1
"""

from collections.abc import Iterator
from typing import Final

from koordcore.events.descheduling import Number
from koordcore.protocol.component_config import NotNegative, Text, WireModel
from koordcore.protocol.objects import ContainerStatus, PodCondition
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import unix_seconds
from pydantic import StrictBool, StrictInt

from koord_descheduler.domain.config.arguments import (
    PodScope,
    PodScopeArgs,
    check_choice,
    check_pods,
    upstream_args,
)
from koord_descheduler.domain.framework.plugin import PluginRun, Point
from koord_descheduler.domain.framework.registry import PluginKind
from koord_descheduler.domain.view.pods import PodView, exit_codes, reasons, statuses

NAME: Final = "PodLifeTime"
STATES: Final = frozenset(
    (
        *("Running", "Pending", "Succeeded", "Failed", "Unknown"),
        *("NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError"),
        *("PodInitializing", "ContainerCreating", "ImagePullBackOff", "CrashLoopBackOff"),
        *("CreateContainerConfigError", "ErrImagePull", "CreateContainerError", "InvalidImageName"),
        *("OOMKilled", "Error", "Completed", "DeadlineExceeded", "Evicted", "ContainerCannotRun", "StartError"),
    )
)
"""Phases and reasons that `states` may list."""


class OwnerKinds(WireModel):
    include: tuple[Text, ...] = ()  # If not empty, a pod needs an owner of one of these kinds
    exclude: tuple[Text, ...] = ()  # A pod must not have an owner of any of these kinds

    def admits(self, pod: PodView) -> bool:
        kinds = {owner.kind for owner in pod.owners}
        return (not self.include or not kinds.isdisjoint(self.include)) and kinds.isdisjoint(self.exclude)


class ConditionFilter(WireModel):
    """Selects conditions of pods by their fields; None or "" selects any value."""

    type: Text = ""
    status: Text = ""
    reason: Text = ""
    # Smallest age of the last change of the condition.
    min_time_since_last_transition_seconds: NotNegative | None = None

    def matches(self, condition: PodCondition, now: float) -> bool:
        """Whether a condition has all given fields and is old enough. A condition without a time has no age."""
        given = ((self.type, condition.type), (self.status, condition.status), (self.reason, condition.reason))
        if any(wanted and wanted != found for wanted, found in given):
            return False
        if self.min_time_since_last_transition_seconds is None:
            return True
        changed = unix_seconds(condition.last_transition_time) if condition.last_transition_time else 0.0
        return changed > 0 and int(now - changed) >= self.min_time_since_last_transition_seconds

    def is_empty(self) -> bool:
        return not (self.type or self.status or self.reason) and self.min_time_since_last_transition_seconds is None


class PodLifeTimeArgs(PodScopeArgs):
    """A pod is evicted if all given criteria hold."""

    owner_kinds: OwnerKinds | None = None
    max_pod_life_time_seconds: NotNegative | None = None  # Age in whole seconds that a pod must exceed; None: any age
    states: tuple[Text, ...] = ()  # Phases or reasons of the pod or of its containers; empty: any
    conditions: tuple[ConditionFilter, ...] = ()  # Filters of which one must match a condition of the pod; empty: any
    exit_codes: tuple[StrictInt, ...] = ()  # Exit codes of ended containers; empty: any
    including_init_containers: StrictBool = False
    including_ephemeral_containers: StrictBool = False  # For `states` only: their exit codes never count


def check(args: PodLifeTimeArgs) -> Iterator[InvalidInput]:
    yield from check_pods(args)
    if args.owner_kinds is not None and args.owner_kinds.include and args.owner_kinds.exclude:
        yield InvalidInput("either include or exclude, not both", list(args.owner_kinds.include), "ownerKinds.include")
    if args.max_pod_life_time_seconds is None and not (args.states or args.conditions or args.exit_codes):
        rule = "given, unless states, conditions or exitCodes are"
        yield InvalidInput(rule, None, "maxPodLifeTimeSeconds")
    for index, state in enumerate(args.states):
        yield from check_choice(state, sorted(STATES), f"states[{index}]")
    for index, condition in enumerate(args.conditions):
        if condition.is_empty():
            yield InvalidInput("a filter with at least one field", {}, f"conditions[{index}]")


class PodLifeTime:
    """Evicts the pods that meet all criteria, the oldest of all nodes first. Finished pods are not exempt."""

    name = NAME

    def __init__(self, args: PodLifeTimeArgs) -> None:
        self._args = args
        self._scope = PodScope(args.namespaces, args.label_selector)

    def deschedule(self, run: PluginRun) -> None:
        now = run.cluster.now
        found = [pod for node in run.nodes for pod in run.cluster.pods_on(node.name) if self._goes(pod, now)]
        found = [pod for pod in found if self._scope.admits(pod) and run.filter(pod)]
        for pod in sorted(found, key=lambda pod: pod.created):
            if run.pre_eviction_filter(pod):
                age = Number(value=int(now - pod.created), limit=self._args.max_pod_life_time_seconds)
                run.evict(pod, f"pod exceeds its lifetime or state limits on node {pod.node}", {"age_seconds": age})

    def _goes(self, pod: PodView, now: float) -> bool:
        args = self._args
        if args.max_pod_life_time_seconds is not None and int(now - pod.created) <= args.max_pod_life_time_seconds:
            return False
        if args.owner_kinds is not None and not args.owner_kinds.admits(pod):
            return False
        if args.states and not self._is_in_state(pod):
            return False
        if args.conditions and not any(
            each.matches(condition, now) for each in args.conditions for condition in pod.object.status.conditions
        ):
            return False
        containers = statuses(pod, init=args.including_init_containers)
        return not args.exit_codes or any(code in args.exit_codes for code in exit_codes(containers))

    def _is_in_state(self, pod: PodView) -> bool:
        states, status = self._args.states, pod.object.status
        if status.phase in states or (status.reason and status.reason in states):
            return True
        return any(reason in states for reason in reasons(self._containers(pod)))

    def _containers(self, pod: PodView) -> Iterator[ContainerStatus]:
        args = self._args
        return statuses(pod, init=args.including_init_containers, ephemeral=args.including_ephemeral_containers)


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.DESCHEDULE}),
    decode=lambda raw: upstream_args(raw, PodLifeTimeArgs),
    arguments=PodLifeTimeArgs,
    check=check,
    make=lambda args, _: PodLifeTime(args),
)
