"""RemovePodsHavingTooManyRestarts: evict pods whose containers were restarted too often.

Source:
    descheduler spec, 10.3
"""

from collections.abc import Iterator
from typing import Final

from koordcore.events.descheduling import Number
from koordcore.protocol.component_config import Text
from koordcore.values.invalid import InvalidInput
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
from koord_descheduler.domain.view.pods import PodView, statuses, waiting_reasons

NAME: Final = "RemovePodsHavingTooManyRestarts"
STATES: Final = ("Running", "CrashLoopBackOff")


class RemovePodsHavingTooManyRestartsArgs(PodScopeArgs):
    pod_restart_threshold: StrictInt = 0  # Restarts of all containers together from which on a pod is evicted
    including_init_containers: StrictBool = False  # Whether init containers count
    states: tuple[Text, ...] = ()  # Phases of the pod, or reasons for which a container waits; empty: any


def check(args: RemovePodsHavingTooManyRestartsArgs) -> Iterator[InvalidInput]:
    yield from check_pods(args)
    if args.pod_restart_threshold < 1:
        yield InvalidInput("at least 1", args.pod_restart_threshold, "podRestartThreshold")
    for index, state in enumerate(args.states):
        yield from check_choice(state, STATES, f"states[{index}]")


class RemovePodsHavingTooManyRestarts:
    """Evicts pods with too many restarts: node by node in order, and the most often restarted pods first."""

    name = NAME

    def __init__(self, args: RemovePodsHavingTooManyRestartsArgs) -> None:
        self._args = args
        self._scope = PodScope(args.namespaces, args.label_selector)

    def deschedule(self, run: PluginRun) -> None:
        for node in run.nodes:
            counted = [(self._restarts(pod), pod) for pod in run.cluster.pods_on(node.name)]
            found = [each for each in counted if each[0] >= self._args.pod_restart_threshold]
            for restarts, pod in sorted(found, key=lambda each: -each[0]):
                if not self._is_in_state(pod) or not self._scope.admits(pod):
                    continue
                if run.filter(pod) and run.pre_eviction_filter(pod):
                    reason = f"containers of the pod restarted {restarts} times on node {node.name}"
                    counted_restarts = Number(value=restarts, limit=self._args.pod_restart_threshold)
                    run.evict(pod, reason, {"restarts": counted_restarts})

    def _restarts(self, pod: PodView) -> int:
        return sum(each.restart_count for each in statuses(pod, init=self._args.including_init_containers))

    def _is_in_state(self, pod: PodView) -> bool:
        states = self._args.states
        if not states or pod.object.status.phase in states:
            return True
        containers = statuses(pod, init=self._args.including_init_containers)
        return any(reason in states for reason in waiting_reasons(containers))


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.DESCHEDULE}),
    decode=lambda raw: upstream_args(raw, RemovePodsHavingTooManyRestartsArgs),
    arguments=RemovePodsHavingTooManyRestartsArgs,
    check=check,
    make=lambda args, _: RemovePodsHavingTooManyRestarts(args),
)
