"""Pods of a node in cgroups v1 of this machine's kernel, each with a process that works a little twice a second."""

import contextlib
import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.fake_node import FakeNode
from koord_agent.domain.kernel.cgroup_layout import CgroupLayout, Driver
from koord_agent.shell.host.probe import cgroup_version
from koordcore.protocol.qos import KubeQos

CGROUP = Path("/sys/fs/cgroup")
HIERARCHIES = ("cpu", "cpuacct", "cpuset", "memory", "blkio")
WORK = 2_000
REST_SECONDS = 0.5


class RealNode(FakeNode):
    """Its second containers are idle, as most are."""

    def __init__(self) -> None:
        self.root = f"koordbench-{os.getpid()}"
        self.layout = CgroupLayout(Driver.CGROUPFS, kubepods=f"{self.root}/kubepods")
        self.cgroup, self.proc = CGROUP, Path("/proc")
        self._made: list[Path] = []
        self._workers: list[int] = []
        for qos in KubeQos:
            self._put(self.layout.qos_directory(qos))

    def add(self, uid: str, *, best_effort: bool) -> dict[str, Any]:
        pod = super().add(uid, best_effort=best_effort)
        identity = pod["status"]["containerStatuses"][0]["containerID"]
        directory = self.layout.container_directory(KubeQos(pod["status"]["qosClass"]), uid, identity)
        self._start(directory)
        return pod

    def _start(self, directory: str) -> None:
        worker = os.fork()
        if worker == 0:
            while True:
                sum(range(WORK))
                time.sleep(REST_SECONDS)
        self._workers.append(worker)
        for hierarchy in HIERARCHIES:
            (CGROUP / hierarchy / directory / "cgroup.procs").write_text(f"{worker}\n")

    def _put(self, directory: str) -> None:
        for hierarchy in HIERARCHIES:
            path = CGROUP / hierarchy
            for part in Path(directory).parts:
                path /= part
                if path.exists():
                    continue
                path.mkdir()
                self._made.append(path)
                for file in ("cpuset.cpus", "cpuset.mems") if hierarchy == "cpuset" else ():
                    (path / file).write_text((path.parent / file).read_text())

    def close(self) -> None:
        for worker in self._workers:
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)
        for path in reversed(self._made):
            for _ in range(100):
                with contextlib.suppress(OSError):
                    path.rmdir()
                    break
                time.sleep(0.05)


def is_possible() -> bool:
    return os.geteuid() == 0 and cgroup_version(CGROUP) == 1 and all((CGROUP / one).is_dir() for one in HIERARCHIES)


@contextmanager
def real_node() -> Generator[RealNode]:
    """Its processes and cgroups are gone afterwards."""
    node = RealNode()
    try:
        yield node
    finally:
        node.close()
