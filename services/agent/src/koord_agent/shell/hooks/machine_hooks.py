"""Reconcilers of values outside of cgroup files: OOM scores, cookies, resctrl groups, files of Terway, tc.

Source: runtime spec, 2.6.
"""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from koord_agent.domain.failure import failure
from koord_agent.domain.gate_names import CORE_SCHED, OOM_SCORE_ADJ, RESCTRL, TC_NETWORK_QOS, TERWAY_QOS
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.strategies.runner import Interval
from koord_agent.settings import AgentSettings
from koord_agent.shell.hooks.core_cookies import CoreCookies, CoreSchedKernel
from koord_agent.shell.hooks.gauges import Gauge
from koord_agent.shell.hooks.oom_scores import OomScores
from koord_agent.shell.hooks.pod_groups import PodGroupReconciler, resctrl_machine
from koord_agent.shell.hooks.terway_files import TerwayFiles
from koord_agent.shell.hooks.traffic_control import TrafficControl
from koord_agent.shell.host.host import Host
from koord_agent.shell.host.probe import HostRoots


class _Reconciler(Protocol):
    def apply(self, look: NodeLook) -> list[str]: ...


class ObserveReconciler(Protocol):
    def __call__(self, level: str, resource: str, /, *, is_ok: bool, seconds: float) -> None:
        """`level` is that of the objects that the reconciler sets: `container`, `pod` or `node`."""
        ...


class _Timed(NamedTuple):
    level: str
    resource: str
    reconciler: _Reconciler


class MachineHooks:
    """Runs the reconcilers of a real machine whose feature gates are on. Only the cycle of its node uses it."""

    def __init__(
        self,
        host: Host,
        roots: HostRoots,
        settings: AgentSettings,
        observe: ObserveReconciler,
        interval: Interval,
    ) -> None:
        is_enabled = settings.feature_gates.enabled
        self._observe = observe
        self._host = host
        self._interval = interval
        self._reconcilers: list[_Timed] = []
        self._problems: list[str] = []
        if is_enabled(OOM_SCORE_ADJ):
            self._reconcilers.append(_Timed("container", "oom_score_adj", OomScores(roots.proc, host.read)))
        kernel = CoreSchedKernel(roots.proc) if is_enabled(CORE_SCHED) else None
        if kernel is not None and kernel.is_supported:
            self._reconcilers.append(_Timed("container", "core_sched_cookie", CoreCookies(kernel, host.read)))
        if is_enabled(TERWAY_QOS):
            self._reconcilers.append(_Timed("node", "terway", TerwayFiles(settings.terway_qos_dir)))
        if is_enabled(TC_NETWORK_QOS):
            self._reconcilers.append(_Timed("node", "tc", TrafficControl(host.read, host.write)))
        machine = resctrl_machine(roots) if is_enabled(RESCTRL) else None
        if machine is not None:
            groups = PodGroupReconciler(roots, machine, self._threads if settings.enable_pod_taskids else None)
            self._reconcilers.append(_Timed("pod", "resctrl", groups))

    def apply(self, look: NodeLook) -> list[str]:
        """Run every reconciler once per interval. Return errors of the last run, one sentence each.

        No-op until all pods are known. Until then, a reconciler would remove the values of pods that it does not know.
        """
        if not self._reconcilers or not look.has_all_pods or not self._interval.is_due(look.now_ms):
            return self._problems
        problems: list[str] = []
        for level, resource, reconciler in self._reconcilers:
            began = time.perf_counter()
            try:
                found = reconciler.apply(look)
            except Exception as error:  # noqa: BLE001 - what follows in the cycle, such as evictions, takes place
                found = [failure(f"{resource} of each {level} failed", error)]
            self._observe(level, resource, is_ok=not found, seconds=time.perf_counter() - began)
            problems += found
        self._problems = problems
        return problems

    def gauges(self) -> Iterator[Gauge]:
        """As of their last run."""
        for each in self._reconcilers:
            if isinstance(each.reconciler, OomScores | CoreCookies):
                yield from each.reconciler.gauges()

    def _threads(self, look: NodeLook, pod: AgentPod) -> Iterable[int]:
        for _, directory in look.created_containers(pod):
            text = self._host.read(CgroupFile(directory, "tasks")) or ""
            yield from (int(line) for line in text.split() if line.isdecimal())
