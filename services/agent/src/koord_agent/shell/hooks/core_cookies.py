"""Cookies of core scheduling: processes with the same cookie may share a physical core.

A cycle gives the processes of each group of pods one cookie, and takes it away when a pod leaves core scheduling. The
kernel creates cookies and copies them between processes; it never tells which process had one first, so the oldest pod
of a group decides. prctl(2) copies a cookie only from or to the calling thread. So each copy is made by a thread of its
own, which ends with the cookie; the threads of the agent keep none.

Source: runtime spec, 3.2.
"""

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from koordcore.protocol.qos import QosClass

from koord_agent.domain.failure import failure
from koord_agent.domain.hooks.core_sched import CoreSchedClass, core_sched_classes, core_sched_group
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.shell.hooks.gauges import Gauge
from koord_agent.shell.host.kernel_files import put, read_kernel_file

KEPT_MS: Final = 300_000
"""Time for which a group or container is remembered after it was seen last."""
PROCESSES: Final = "cgroup.procs"
PR_SCHED_CORE: Final = 62
GET, CREATE, SHARE_TO, SHARE_FROM = range(4)
THREAD: Final = 0
THREAD_GROUP: Final = 1


class CookieKernel(Protocol):
    def enable(self) -> bool:
        """Switch core scheduling on, and group identity off, where the kernel has switches. Return False on failure."""
        ...

    def cookie(self, process: int) -> int | None:
        """0 for none; None if it cannot be read."""
        ...

    def create(self, process: int) -> None:
        """Give a process a new cookie. No-op if the process is gone."""
        ...

    def share(self, source: int, targets: Sequence[int]) -> None:
        """Copy the cookie of a process to other processes. Those that have ended are skipped."""
        ...

    def clear(self, processes: Sequence[int]) -> None:
        """Processes that are gone are skipped."""
        ...


@dataclass(slots=True)
class _Group:
    cookie: int
    processes: dict[int, None] = field(default_factory=dict[int, None])
    seen_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Container:
    pod: AgentPod
    name: str
    id: str
    group_id: str
    is_enabled: bool
    processes: tuple[int, ...]


class CoreCookies:
    """Sets the cookies of one machine. Only the cycle of its node uses it."""

    def __init__(self, kernel: CookieKernel, read: Callable[[CgroupFile], str | None]) -> None:
        self._kernel = kernel
        self._read = read
        self._groups: dict[str, _Group] = {}
        self._grouped: dict[str, int] = {}
        """Id of a container in a group -> time at which it was seen last."""
        self._is_rebuilt = False
        self._managed: Counter[tuple[str, str]] = Counter()
        """Group and "succeeded" or "failed" -> how often a cookie was made for it."""
        self._held: list[Gauge] = []

    def apply(self, look: NodeLook) -> list[str]:
        """Give the processes of pods the cookies of their groups, and take other cookies away. Return errors.

        An error concerns one container: the others get their cookies, and the next call tries again. Equal errors are
        returned once.
        """
        classes = core_sched_classes(look.section("resourceQOSStrategy"))
        is_wanted = any(one.enabled for one in classes.values())
        if not is_wanted and self._is_rebuilt and not self._grouped:
            return []
        if is_wanted and not self._kernel.enable():
            return ["core scheduling: the kernel does not switch it on"]
        containers = list(self._containers(look, classes))
        self._held = []
        if not self._is_rebuilt and containers:  # there are none before the first list of the kubelet
            self._is_rebuilt = True
            self._rebuild(containers, look.now_ms)
        problems: dict[str, None] = {}
        for container in containers:
            try:
                if container.is_enabled:
                    self._join(container, look.now_ms)
                elif container.id in self._grouped:
                    self._leave(container)
            except Exception as error:  # noqa: BLE001 - such as a thread that the machine has no room for
                problems[failure("core scheduling: containers keep their cookies", error)] = None
        self._groups = {name: one for name, one in self._groups.items() if look.now_ms - one.seen_ms <= KEPT_MS}
        self._grouped = {id_: at for id_, at in self._grouped.items() if look.now_ms - at <= KEPT_MS}
        named = self._groups.keys() | {container.group_id for container in containers}
        self._managed = Counter({key: count for key, count in self._managed.items() if key[0] in named})
        self._held = [gauge for container in containers for gauge in self._gauges_of(container)]
        return list(problems)

    def gauges(self) -> Iterator[Gauge]:
        """Yield the cookie of each container in a group, and how often cookies were made."""
        yield from self._held
        for (group, status), count in dict(self._managed).items():
            yield Gauge("core_sched_cookie_manage_status", {"core_sched_group": group, "status": status}, count)

    def _gauges_of(self, container: _Container) -> Iterator[Gauge]:
        group = self._groups.get(container.group_id)
        if group is not None and container.is_enabled and container.id in self._grouped:
            pod = container.pod
            labels = {
                "pod_name": pod.name,
                "pod_namespace": pod.namespace,
                "pod_uid": pod.uid,
                "container_name": container.name,
                "container_id": container.id,
                "core_sched_group": container.group_id,
                "core_sched_cookie": str(group.cookie),
            }
            yield Gauge("container_core_sched_cookie", labels, 1.0)

    def _containers(self, look: NodeLook, classes: Mapping[str, CoreSchedClass]) -> Iterator[_Container]:
        """Only containers that exist, those of the oldest pod first."""
        for pod in sorted(look.pods, key=lambda pod: (pod.created_ms or 0, pod.uid)):
            if pod.qos_label == QosClass.SYSTEM or pod.uid in look.frozen or not pod.is_active:
                continue
            group = core_sched_group(classes, pod.labels, pod.kube_qos, pod.uid)
            for container, directory in look.created_containers(pod):
                text = self._read(CgroupFile(directory, PROCESSES)) or ""
                processes = tuple(int(line) for line in text.split() if line.isdecimal())
                yield _Container(pod, container.name, container.container_id, group.group_id, group.enabled, processes)

    def _rebuild(self, containers: Iterable[_Container], now_ms: int) -> None:
        """Learn the cookies that an earlier process of the agent has set. The first one of a group counts."""
        for container in containers:
            for process in container.processes:
                cookie = self._kernel.cookie(process)
                if not cookie:
                    continue
                self._grouped[container.id] = now_ms
                group = self._groups.setdefault(container.group_id, _Group(cookie, seen_ms=now_ms))
                if group.cookie == cookie:
                    group.processes[process] = None

    def _join(self, container: _Container, now_ms: int) -> None:
        """Give all processes of a container the cookie of its group. A group without one gets a new one."""
        cookies = {process: self._kernel.cookie(process) for process in container.processes}
        known = [process for process, cookie in cookies.items() if cookie is not None]
        if not known:
            return
        self._grouped[container.id] = now_ms
        group = self._groups.get(container.group_id)
        source = None if group is None else self._holder(group)
        if group is None or source is None:
            self._kernel.create(known[0])
            cookie = self._kernel.cookie(known[0])
            self._managed[container.group_id, "succeeded" if cookie else "failed"] += 1
            if not cookie:
                return
            source = known[0]
            group = self._groups[container.group_id] = _Group(cookie, {source: None}, seen_ms=now_ms)
        group.seen_ms = now_ms  # also if the cookie cannot be shared: the group lives
        missing = [process for process in known if process != source and cookies[process] != group.cookie]
        if missing:
            self._kernel.share(source, missing)
        group.processes.update(dict.fromkeys(known))

    def _holder(self, group: _Group) -> int | None:
        """A process that still holds the cookie of a group. Those that lost it are forgotten."""
        for process in tuple(group.processes):
            if self._kernel.cookie(process) == group.cookie:
                return process
            del group.processes[process]
        return None

    def _leave(self, container: _Container) -> None:
        with_cookie = [process for process in container.processes if self._kernel.cookie(process)]
        if with_cookie:
            self._kernel.clear(with_cookie)
        self._grouped.pop(container.id)
        for group in self._groups.values():
            for process in container.processes:
                group.processes.pop(process, None)


class CoreSchedKernel:
    def __init__(self, proc: Path) -> None:
        self._kernel = proc / "sys" / "kernel"
        self._libc = ctypes.CDLL(None, use_errno=True)

    @property
    def is_supported(self) -> bool:
        """Whether core scheduling can be used: the kernel has the switch `sched_core`, or gives this process's cookie.

        It gives the cookie only if the CPU has threads that share a core. With the switch, this is not checked.
        """
        return (self._kernel / "sched_core").exists() or self.cookie(os.getpid()) is not None

    def enable(self) -> bool:
        for name, value in (("sched_group_identity_enabled", "0"), ("sched_core", "1")):
            current = read_kernel_file(str(self._kernel / name))
            if current is None or current.strip() == value:
                continue
            try:
                put(self._kernel / name, value)
            except OSError:
                return False
        return True

    def cookie(self, process: int) -> int | None:
        found = ctypes.c_uint64(0)
        done = self._call(GET, process, THREAD, ctypes.addressof(found))
        return found.value if done else None

    def create(self, process: int) -> None:
        self._call(CREATE, process, THREAD_GROUP)

    def share(self, source: int, targets: Sequence[int]) -> None:
        def copy() -> None:
            if self._call(SHARE_FROM, source, THREAD):
                for target in targets:
                    self._call(SHARE_TO, target, THREAD_GROUP)

        _in_thread(copy)

    def clear(self, processes: Sequence[int]) -> None:
        """A new thread without a cookie copies its state, because prctl can only copy cookies."""

        def copy() -> None:
            for process in processes:
                self._call(SHARE_TO, process, THREAD_GROUP)

        _in_thread(copy)

    def _call(self, command: int, process: int, scope: int, address: int = 0) -> bool:
        """False if the kernel refuses, for example because the process is gone."""
        words = (ctypes.c_ulong(word) for word in (command, process, scope, address))
        return self._libc.prctl(PR_SCHED_CORE, *words) == 0


def _in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work, name="core-cookie")
    thread.start()
    thread.join()
