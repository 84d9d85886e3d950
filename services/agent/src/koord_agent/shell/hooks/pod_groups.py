"""Resctrl groups of single pods, which limit their cache ways and memory bandwidth.

A group is created before the sandbox of its pod starts. A cycle of the agent creates the groups that are missing,
writes schemata that changed, and removes the groups of pods that are gone. Source: runtime spec, 3.8.
"""

import errno
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from koordcore.protocol import keys
from koordcore.service.telemetry.logging import logger
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.hooks.call import ResctrlMachine
from koord_agent.domain.hooks.resctrl import GROUP_PREFIX, group_name, missing_tasks, pod_schemata
from koord_agent.domain.kernel.counters import MalformedCounter
from koord_agent.domain.kernel.resctrl_files import parse_schemata, resctrl_support
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.shell.host.kernel_files import put, read_kernel_file
from koord_agent.shell.host.probe import HostRoots, bandwidth_vendor

REMOVE_AFTER_MS: Final = 10_000
"""Age above which the group of a pod that is gone is removed: the pod may not be in the list yet."""
_GONE: Final = (errno.ENOENT, errno.ESRCH)
_log: Final = logger("agent.hooks")


class PodGroups:
    def __init__(self, root: Path) -> None:
        """`root` is the mount point of resctrl."""
        self._root = root

    def create(self, name: str, schemata: str) -> None:
        """Do what `write` does. A failure is logged; the pod stays in the default group."""
        if (problem := self.write(name, schemata)) is not None:
            _log.warning("resctrl_group_not_set", group=name, reason=problem)

    def write(self, name: str, schemata: str) -> str | None:
        """Create the group of a pod, if it does not exist, and write its schemata; "" sets no limit.

        None, or the reason why the kernel refused, such as that the machine has no free group.
        """
        folder = self._root / name
        try:
            folder.mkdir(exist_ok=True)
            for line in schemata.splitlines():
                put(folder / "schemata", f"{line}\n")
        except OSError as error:
            return "the machine has no free group" if error.errno == errno.ENOSPC else str(error.strerror)
        return None

    def remove(self, name: str) -> None:
        """Remove the group of a pod. No-op if it does not exist; another failure is logged."""
        if (problem := self.clear(name)) is not None:
            _log.warning("resctrl_group_not_removed", group=name, reason=problem)

    def clear(self, name: str) -> str | None:
        """None, or the reason why the kernel refused. No-op if the group does not exist."""
        try:
            (self._root / name).rmdir()
        except FileNotFoundError:
            return None
        except OSError as error:
            return str(error.strerror)
        return None

    def names(self) -> frozenset[str]:
        """Empty without resctrl."""
        try:
            return frozenset(entry.name for entry in self._root.iterdir() if entry.name.startswith(GROUP_PREFIX))
        except OSError:
            return frozenset()


def resctrl_machine(roots: HostRoots) -> ResctrlMachine | None:
    """None if resctrl is not mounted or the CPU cannot divide caches."""
    support = resctrl_support(read_kernel_file(str(roots.proc / "cpuinfo")) or "")
    mask = read_kernel_file(str(roots.resctrl / "info/L3/cbm_mask"))
    if not support.control or mask is None:
        return None
    try:
        root = parse_schemata(read_kernel_file(str(roots.resctrl / "schemata")) or "")
    except MalformedCounter:
        return None
    return ResctrlMachine(cbm_mask=mask, cache_ids=tuple(sorted(root.l3)), vendor=bandwidth_vendor(roots))


class PodGroupReconciler:
    """Sets values and threads that the hooks missed, once per cycle.

    Without `threads`, which returns the threads of a pod, only threads that the runtime starts are in the group.
    """

    def __init__(
        self, roots: HostRoots, machine: ResctrlMachine, threads: Callable[[NodeLook, AgentPod], Iterable[int]] | None
    ) -> None:
        self._root = roots.resctrl
        self._groups = PodGroups(roots.resctrl)
        self._machine = machine
        self._threads = threads
        self._written: dict[str, str] = {}
        self._gone_since: dict[str, int] = {}

    def apply(self, look: NodeLook) -> list[str]:
        """Create, change and remove groups, and move threads to them. Return errors, one sentence each.

        A group is removed when its pod has been gone for 10 s.
        """
        problems: list[str] = []
        present, wanted = self._groups.names(), dict[str, AgentPod]()
        for pod in look.pods:
            text = pod.annotations.get(keys.RESCTRL)
            if not text or not pod.is_active:
                continue
            wanted[group_name(pod.cgroup_uid)] = pod
            try:
                problem = self._set(pod, text, is_present=group_name(pod.cgroup_uid) in present)
            except InvalidInput as error:
                problem = str(error)
            if problem is not None:
                problems.append(f"pod {pod.namespace}/{pod.name}: its resctrl group is not set: {problem}")
            if self._threads is not None:
                problems.extend(self._move(group_name(pod.cgroup_uid), self._threads(look, pod)))
        self._gone_since = {name: self._gone_since.get(name, look.now_ms) for name in present - wanted.keys()}
        for name, since_ms in self._gone_since.items():
            problem = self._groups.clear(name) if look.now_ms - since_ms >= REMOVE_AFTER_MS else None
            if problem is not None:
                problems.append(f"resctrl group {name}: not removed: {problem}")
        self._written = {name: text for name, text in self._written.items() if name in wanted}
        return problems

    def _set(self, pod: AgentPod, annotation: str, *, is_present: bool) -> str | None:
        """None, or the reason why the kernel refused.

        Raises:
            InvalidInput: The annotation is invalid.
        """
        name = group_name(pod.cgroup_uid)
        if is_present and self._written.get(name) == annotation:
            return None
        machine = self._machine
        schemata = pod_schemata(
            annotation, cbm_mask=machine.cbm_mask, cache_ids=machine.cache_ids, vendor=machine.vendor
        )
        problem = self._groups.write(name, schemata)
        if problem is None:
            self._written[name] = annotation
        return problem

    def _move(self, name: str, threads: Iterable[int]) -> Iterable[str]:
        tasks = self._root / name / "tasks"
        text = read_kernel_file(str(tasks))
        reasons: dict[str | None, None] = {}  # once for a group: threads come and go
        for thread in missing_tasks(threads, text) if text is not None else ():
            try:
                put(tasks, str(thread))
            except OSError as error:
                if error.errno not in _GONE:
                    reasons[error.strerror] = None
        return [f"resctrl group {name}: threads are not moved: {reason}" for reason in reasons]
