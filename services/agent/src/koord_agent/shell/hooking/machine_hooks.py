"""What the reconciler mode sets outside of cgroup files: OOM scores, cookies, resctrl groups, files of Terway, tc.

Source: runtime spec, 2.6.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from koord_agent.domain.gate_names import CORE_SCHED, OOM_SCORE_ADJ, RESCTRL, TC_NETWORK_QOS, TERWAY_QOS
from koord_agent.domain.kernel.cgroup_layout import UnknownContainerId
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.domain.qos.intervals import Interval
from koord_agent.domain.state.node_look import NodeLook
from koord_agent.domain.state.pods import AgentPod
from koord_agent.shell.hooking.core_cookies import CoreCookies
from koord_agent.shell.hooking.oom_scores import OomScores
from koord_agent.shell.hooking.pod_groups import PodGroupReconciler, resctrl_machine
from koord_agent.shell.hooking.terway_files import TerwayFiles
from koord_agent.shell.hooking.traffic_control import TrafficControl
from koord_agent.shell.host.core_sched import CoreSchedKernel
from koord_agent.shell.host.host import Host
from koord_agent.shell.host.probe import HostRoots


class _Reconciler(Protocol):
    def apply(self, look: NodeLook) -> list[str]: ...


class MachineHooks:
    """Runs the reconcilers of a real machine whose feature gates are on. Only the cycle of its node uses it."""

    def __init__(
        self,
        host: Host,
        roots: HostRoots,
        *,
        is_enabled: Callable[[str], bool],
        interval: Interval,
        terway: Path,
        moves_threads: bool,
    ) -> None:
        """Create the reconcilers.

        Args:
            host: The machine.
            roots: Where its file systems are.
            is_enabled: Returns whether a feature gate is on.
            interval: When values are compared with the machine.
            terway: Folder of the files of Terway.
            moves_threads: Whether threads of pods are moved to their resctrl groups.
        """
        self._host = host
        self._interval = interval
        self._reconcilers: list[_Reconciler] = []
        if is_enabled(OOM_SCORE_ADJ):
            self._reconcilers.append(OomScores(roots.proc, host.read))
        kernel = CoreSchedKernel(roots.proc) if is_enabled(CORE_SCHED) else None
        if kernel is not None and kernel.is_supported:
            self._reconcilers.append(CoreCookies(kernel, host.read))
        if is_enabled(TERWAY_QOS):
            self._reconcilers.append(TerwayFiles(terway))
        if is_enabled(TC_NETWORK_QOS):
            self._reconcilers.append(TrafficControl(host.read, host.write))
        machine = resctrl_machine(roots) if is_enabled(RESCTRL) else None
        if machine is not None:
            self._reconcilers.append(PodGroupReconciler(roots, machine, self._threads if moves_threads else None))

    def apply(self, look: NodeLook) -> list[str]:
        """Set what differs, once per interval. Return errors, one sentence each.

        Args:
            look: Snapshot of the node.
        """
        if not self._reconcilers or not self._interval.is_due(look.now_ms):
            return []
        return [problem for reconciler in self._reconcilers for problem in reconciler.apply(look)]

    def _threads(self, look: NodeLook, pod: AgentPod) -> Iterable[int]:
        for container in pod.containers:
            try:
                directory = look.container_directory(pod, container.container_id)
            except UnknownContainerId:
                continue
            text = self._host.read(CgroupFile(directory, "tasks")) or ""
            yield from (int(line) for line in text.split() if line.isdecimal())
