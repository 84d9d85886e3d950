"""RemovePodsViolatingNodeTaints: evict pods that do not tolerate the taints of their node.

Source:
    descheduler spec, 10.4
"""

from collections.abc import Iterator
from typing import Final

from koordcore.protocol.component_config import Text
from koordcore.protocol.objects import Taint
from koordcore.protocol.placement import NO_SCHEDULE, PREFER_NO_SCHEDULE, is_tolerated
from koordcore.values.invalid import InvalidInput
from pydantic import StrictBool

from koord_descheduler.domain.config.arguments import (
    PodScope,
    PodScopeArgs,
    check_pods,
    upstream_args,
)
from koord_descheduler.domain.framework.plugin import PluginRun, Point
from koord_descheduler.domain.framework.registry import PluginKind

NAME: Final = "RemovePodsViolatingNodeTaints"


class RemovePodsViolatingNodeTaintsArgs(PodScopeArgs):
    include_prefer_no_schedule: StrictBool = False  # Whether taints with effect PreferNoSchedule count
    excluded_taints: tuple[Text, ...] = ()  # Taints that do not count, as `key` or `key=value`
    included_taints: tuple[Text, ...] | None = None  # Taints that count; None for all. An empty list: none counts.


def check(args: RemovePodsViolatingNodeTaintsArgs) -> Iterator[InvalidInput]:
    yield from check_pods(args)
    if args.excluded_taints and args.included_taints:
        yield InvalidInput("empty with excludedTaints", list(args.included_taints), "includedTaints")


class RemovePodsViolatingNodeTaints:
    """Evicts unfinished pods that do not tolerate a NoSchedule taint of their node. NoExecute is never read."""

    name = NAME

    def __init__(self, args: RemovePodsViolatingNodeTaintsArgs) -> None:
        self._args = args
        self._scope = PodScope(args.namespaces, args.label_selector)
        self._effects = (NO_SCHEDULE, PREFER_NO_SCHEDULE) if args.include_prefer_no_schedule else (NO_SCHEDULE,)

    def deschedule(self, run: PluginRun) -> None:
        for node in run.nodes:
            taints = [taint for taint in node.taints if self._counts(taint)]
            if not taints:
                continue
            for pod in run.cluster.unfinished_on(node.name):
                tolerations = pod.object.spec.tolerations
                if all(is_tolerated(taint, tolerations) for taint in taints):
                    continue
                if self._scope.admits(pod) and run.filter(pod) and run.pre_eviction_filter(pod):
                    run.evict(pod, f"pod does not tolerate the taints of node {node.name}")

    def _counts(self, taint: Taint) -> bool:
        if taint.effect not in self._effects or _is_listed(taint, self._args.excluded_taints):
            return False
        return self._args.included_taints is None or _is_listed(taint, self._args.included_taints)


def _is_listed(taint: Taint, entries: tuple[str, ...]) -> bool:
    """Whether an entry `key`, or `key=value` with a value that is not empty, names a taint."""
    return taint.key in entries or (taint.value != "" and f"{taint.key}={taint.value}" in entries)


KIND: Final = PluginKind(
    name=NAME,
    points=frozenset({Point.DESCHEDULE}),
    decode=lambda raw: upstream_args(raw, RemovePodsViolatingNodeTaintsArgs),
    arguments=RemovePodsViolatingNodeTaintsArgs,
    check=check,
    make=lambda args, _: RemovePodsViolatingNodeTaints(args),
)
