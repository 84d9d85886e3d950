"""RemoveFailedPods: evict pods in phase Failed.

Source:
    descheduler spec, 10.2
"""

from typing import Final

from koordcore.events.descheduling import Number
from koordcore.protocol.component_config import NotNegative, Text
from pydantic import StrictBool, StrictInt

from koord_descheduler.domain.config.arguments import (
    PodScope,
    PodScopeArgs,
    check_pods,
    upstream_args,
)
from koord_descheduler.domain.framework.plugin import PluginRun, Point
from koord_descheduler.domain.framework.registry import PluginKind
from koord_descheduler.domain.view.pods import FAILED, PodView, exit_codes, reasons, statuses

NAME: Final = "RemoveFailedPods"


class RemoveFailedPodsArgs(PodScopeArgs):
    """A failed pod is evicted if all given criteria hold."""

    exclude_owner_kinds: tuple[Text, ...] = ()  # Pods with an owner of one of these kinds stay
    min_pod_lifetime_seconds: NotNegative = 3600  # Younger pods stay; their age counts in whole seconds
    reasons: tuple[Text, ...] = ()  # Reasons of the pod or of its containers; empty: any
    exit_codes: tuple[StrictInt, ...] = ()  # Exit codes of ended containers; empty: any
    including_init_containers: StrictBool = False


class RemoveFailedPods:
    """Evicts failed pods that meet all criteria, node by node in order."""

    name = NAME

    def __init__(self, args: RemoveFailedPodsArgs) -> None:
        self._args = args
        self._scope = PodScope(args.namespaces, args.label_selector)

    def deschedule(self, run: PluginRun) -> None:
        for node in run.nodes:
            for pod in run.cluster.pods_on(node.name):
                if pod.object.status.phase != FAILED or not self._goes(pod, run.cluster.now):
                    continue
                if self._scope.admits(pod) and run.filter(pod) and run.pre_eviction_filter(pod):
                    age = int(run.cluster.now - pod.created)
                    inputs = {"age_seconds": Number(value=age, limit=self._args.min_pod_lifetime_seconds)}
                    run.evict(pod, f"pod has failed on node {node.name}", inputs)

    def _goes(self, pod: PodView, now: float) -> bool:
        args, init = self._args, self._args.including_init_containers
        if int(now - pod.created) < args.min_pod_lifetime_seconds:
            return False
        if any(owner.kind in args.exclude_owner_kinds for owner in pod.owners):
            return False
        if args.reasons and pod.object.status.reason not in args.reasons:
            found = reasons(statuses(pod, init=init))
            if not any(reason in args.reasons for reason in found):
                return False
        return not args.exit_codes or any(code in args.exit_codes for code in exit_codes(statuses(pod, init=init)))


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.DESCHEDULE}),
    decode=lambda raw: upstream_args(raw, RemoveFailedPodsArgs),
    arguments=RemoveFailedPodsArgs,
    check=check_pods,
    make=lambda args, _: RemoveFailedPods(args),
)
