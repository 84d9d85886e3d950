"""Cookies of core scheduling against a kernel of our own: most machines of tests have no threads that share a core."""

import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.domain.metrics.series import Metrics, SeriesStore
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod, agent_pod_from_json
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.shell.hooks.core_cookies import KEPT_MS, CoreCookies, CoreSchedKernel
from koordcore.protocol import keys

ON: dict[str, Any] = {
    "policies": {"cpuPolicy": "coreSched"},
    "lsClass": {"cpuQOS": {"enable": True}},
    "beClass": {"cpuQOS": {"enable": True}},
}


class Kernel:
    """Cookies by process, with the rules of prctl: processes that are gone are refused."""

    def __init__(self, *processes: int) -> None:
        self.cookies = dict.fromkeys(processes, 0)
        self._fresh = itertools.count(100)
        self.writes = 0
        self.works = True
        self.has_room = True

    def enable(self) -> bool:
        return self.works

    def cookie(self, process: int) -> int | None:
        return self.cookies.get(process)

    def create(self, process: int) -> None:
        if process in self.cookies:
            self.writes += 1
            self.cookies[process] = next(self._fresh)

    def share(self, source: int, targets: Sequence[int]) -> None:
        if not self.has_room:
            raise RuntimeError("can't start new thread")
        for target in targets:
            if source in self.cookies and target in self.cookies:
                self.writes += 1
                self.cookies[target] = self.cookies[source]

    def clear(self, processes: Sequence[int]) -> None:
        for process in processes:
            if process in self.cookies:
                self.writes += 1
                self.cookies[process] = 0


class Node:
    """Pods with their processes, and their cookies."""

    def __init__(self, **processes: list[int]) -> None:
        self.processes = processes
        self.kernel = Kernel(*itertools.chain(*processes.values()))
        self.cookies = CoreCookies(self.kernel, self.read)
        self.labels: dict[str, dict[str, str]] = {}

    def read(self, file: CgroupFile) -> str | None:
        name = file.directory.rpartition("/")[2]
        return "\n".join(map(str, self.processes[name])) if file.resource == "cgroup.procs" else None

    def pod(self, name: str, second: int) -> AgentPod:
        labels = {keys.QOS_CLASS: "LS", **self.labels.get(name, {})}
        created = f"2026-01-01T00:00:{second:02}Z"
        meta = {"name": name, "namespace": "d", "uid": name, "labels": labels, "creationTimestamp": created}
        status = {
            "phase": "Running",
            "qosClass": "Burstable",
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{name}"}],
        }
        return agent_pod_from_json({"metadata": meta, "spec": {"containers": [{"name": "main"}]}, "status": status})

    def cycle(self, now_ms: int = 0, strategy: dict[str, Any] = ON) -> list[str]:
        look = NodeLook(
            now_ms=now_ms,
            node="n",
            layout=CgroupLayout(Driver.CGROUPFS),
            cgroup_version=1,
            metrics=Metrics(store=SeriesStore(), now_ms=0, interval_ms=1_000),
            pods=tuple(self.pod(name, second) for second, name in enumerate(self.processes)),
            slo={"resourceQOSStrategy": strategy},
        )
        return self.cookies.apply(look)


def test_pods_of_a_group_share_a_cookie_and_other_groups_have_others() -> None:
    node = Node(a=[1, 2], b=[3], c=[4], d=[5])
    node.labels = {
        "c": {keys.QOS_CLASS: "BE"},
        "d": {keys.CORE_SCHED_POLICY: "exclusive"},
    }
    assert node.cycle() == []
    of = node.kernel.cookies
    assert of[1] == of[2] == of[3] != 0
    assert len({of[1], of[4], of[5]}) == 3
    assert 0 not in of.values()
    shown = {
        gauge.labels["container_name"] + gauge.labels["pod_name"]: gauge.labels["core_sched_cookie"]
        for gauge in node.cookies.gauges()
        if gauge.name == "container_core_sched_cookie"
    }
    assert shown == {f"main{name}": str(of[process]) for name, process in (("a", 1), ("b", 3), ("c", 4), ("d", 5))}
    made = [gauge.value for gauge in node.cookies.gauges() if gauge.name == "core_sched_cookie_manage_status"]
    assert made == [1, 1, 1]
    writes = node.kernel.writes
    assert node.cycle(1_000) == []
    assert node.kernel.writes == writes, "nothing changed"


def test_counts_of_groups_that_are_gone_are_forgotten() -> None:
    node, now_ms = Node(), 0
    for number in range(20):
        name = f"job-{number}"
        node.processes, node.labels = {name: [number + 1]}, {name: {keys.CORE_SCHED_POLICY: "exclusive"}}
        node.kernel.cookies[number + 1] = 0
        now_ms += KEPT_MS
        node.cycle(now_ms)
    assert len([each for each in node.cookies.gauges() if each.name == "core_sched_cookie_manage_status"]) <= 2


def test_new_process_gets_the_cookie_of_its_group_also_when_the_first_ones_are_gone() -> None:
    node = Node(a=[1], b=[2])
    node.cycle()
    cookie = node.kernel.cookies[1]
    del node.kernel.cookies[1]
    node.processes["a"] = [1, 9]
    node.kernel.cookies[9] = 0
    node.cycle(1_000)
    assert node.kernel.cookies == {2: cookie, 9: cookie}
    node.kernel.cookies = {9: 0}
    node.processes = {"a": [9]}
    node.cycle(2_000)
    assert node.kernel.cookies[9] not in (0, cookie), "nobody holds the old one"


def test_disabled_pod_loses_its_cookie_and_processes_of_others_are_left_alone() -> None:
    node = Node(a=[1], b=[2])
    node.cycle()
    node.labels = {"a": {keys.CORE_SCHED_POLICY: "none"}}
    node.cycle(1_000)
    assert node.kernel.cookies[1] == 0
    assert node.kernel.cookies[2] != 0
    node.cycle(2_000, strategy={})
    assert node.kernel.cookies == {1: 0, 2: 0}
    node.kernel.cookies[2] = 7
    node.cycle(3_000, strategy={})
    assert node.kernel.cookies[2] == 7, "not a cookie of the agent"


def test_cookies_survive_a_restart_and_the_oldest_pod_decides() -> None:
    node = Node(a=[1], b=[2, 3])
    node.kernel.cookies = {1: 50, 2: 60, 3: 0}
    node.cycle()
    assert node.kernel.cookies == {1: 50, 2: 50, 3: 50}


def test_cookies_survive_a_restart_before_the_first_list_of_the_kubelet() -> None:
    node = Node()
    node.cycle()
    node.processes, node.kernel.cookies = {"a": [1], "b": [2]}, {1: 50, 2: 60}
    node.labels = {"b": {keys.CORE_SCHED_POLICY: "none"}}
    node.cycle(1_000)
    assert node.kernel.cookies == {1: 50, 2: 0}


def test_group_is_forgotten_after_five_minutes_and_a_kernel_that_refuses_is_told() -> None:
    node = Node(a=[1])
    node.cycle()
    first = node.kernel.cookies[1]
    node.processes = {}
    node.cycle(KEPT_MS + 1)
    node.processes = {"b": [1]}
    node.cycle(KEPT_MS + 2)
    assert node.kernel.cookies[1] != first
    node.kernel.works = False
    (problem,) = node.cycle(KEPT_MS + 3)
    assert "does not switch it on" in problem


def test_a_machine_without_room_for_a_thread_keeps_one_container_back_and_is_told_once() -> None:
    node = Node(a=[1, 2], b=[3, 4], c=[5])
    node.labels = {name: {keys.CORE_SCHED_POLICY: "exclusive"} for name in ("b", "c")}
    node.kernel.has_room = False
    (problem,) = node.cycle(KEPT_MS)
    assert "RuntimeError: can't start new thread (test_core_cookies.py:" in problem
    made = dict(node.kernel.cookies)
    assert made[1] != 0, "of a group of its own"
    assert (made[2], made[4]) == (0, 0)
    assert made[5] != 0, "no thread is needed for a single process"
    node.cycle(2 * KEPT_MS + 1)  # so long, no group is forgotten
    node.kernel.has_room = True
    assert node.cycle(2 * KEPT_MS + 1_000) == []
    of = node.kernel.cookies
    assert (of[2], of[4], of[5]) == (made[1], made[3], made[5]), "no group got a second cookie"


def test_this_machine_is_asked_without_harm(tmp_path: Path) -> None:
    kernel = CoreSchedKernel(tmp_path)
    own = kernel.cookie(os.getpid())
    assert kernel.cookie(2**22 + 1) is None, "no such process"
    kernel.clear([2**22 + 1])
    kernel.share(2**22 + 1, [os.getpid()])
    assert kernel.cookie(os.getpid()) == own
    assert kernel.is_supported == (own is not None)
    switches = tmp_path / "sys" / "kernel"
    switches.mkdir(parents=True)
    (switches / "sched_core").write_text("0\n")
    (switches / "sched_group_identity_enabled").write_text("1\n")
    assert kernel.enable()
    assert kernel.is_supported
    assert (switches / "sched_core").read_text() == "1"
    assert (switches / "sched_group_identity_enabled").read_text() == "0"
