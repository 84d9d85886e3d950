"""Process 1 of a node in namespaces of its own: it prepares the file systems, starts programs, and reaps what ends.

Only the standard library, because it runs before anything else. `machine` starts it, and talks to it over `init.sock`
in the folder of the node, one JSON document for each connection:

    {"start": ["/path/kubelet", "--flag"], "name": "kubelet"}    its output is appended to log/kubelet.log
    {"kill": "kubelet", "signal": 9}
    {"running": true}                                            name -> process id in the node

When this process ends, the kernel ends all others of the node, and takes their mounts and interfaces away.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

SOCKET: Final = "init.sock"
CGROUPS: Final = Path("/sys/fs/cgroup")
INIT_CGROUP: Final = CGROUPS / "init"
PROC_STAT: Final = Path("/run/proc-stat")
STAT_SECONDS: Final = 0.25
NS_PER_TICK: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
LONGEST_REQUEST: Final = 1 << 20
CONTAINERD_FOLDER: Final = "/var/lib/containerd"
OWN_FOLDERS: Final = {
    "kubelet": "/var/lib/kubelet",
    "containerd": CONTAINERD_FOLDER,
    "koordlet": "/var/lib/koordlet",
    "cni-state": "/var/lib/cni",
    "var-log": "/var/log",
    "cni": "/etc/cni",
    "kubernetes": "/etc/kubernetes",
    "hook-servers": "/etc/runtime",
    "versions": "/opt/koordstream",
}
"""Folder of the node -> where its programs see it in place of this machine's."""


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def cgroup_mounts() -> list[tuple[str, str, str]]:
    """Mount point, type and options of each hierarchy of cgroups, as this machine has mounted them."""
    found: list[tuple[str, str, str]] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ")[:3]
        target = before.split(" ")[4]
        if kind in {"cgroup", "cgroup2"} and Path(target).is_relative_to(CGROUPS):
            named = [word for word in options.split(",") if word not in {"rw", "ro"} and kind == "cgroup"]
            found.append((target, kind, ",".join(["none", *named] if options.count("name=") else named)))
    return found


def prepare_file_systems(folder: Path) -> None:
    """Mount what shows the node instead of this machine: /sys and its cgroups, /run, and the folders of a node."""
    hierarchies = cgroup_mounts()
    subprocess.run(["umount", "--recursive", "/sys"], check=True)
    mount("-t", "sysfs", "sysfs", "/sys")
    if [kind for _, kind, _ in hierarchies] != ["cgroup2"]:
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(CGROUPS))
    for target, kind, options in hierarchies:
        Path(target).mkdir(exist_ok=True)
        mount("-t", kind, *(("-o", options) if options else ()), kind, target)
    if (CGROUPS / "cgroup.controllers").exists():
        # Only leaves of the unified hierarchy hold processes.
        INIT_CGROUP.mkdir()
        (INIT_CGROUP / "cgroup.procs").write_text("1")
        controllers = (CGROUPS / "cgroup.controllers").read_text().split()
        (CGROUPS / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for own, seen in OWN_FOLDERS.items():
        mount("--bind", str(folder / own), seen)
    # A volume with mountPropagation needs a shared mount.
    mount("--make-rshared", "/")


def used_ns() -> list[int]:
    """CPU time of the node since it started, for each CPU of the machine."""
    per_cpu = CGROUPS / "cpuacct" / "cpuacct.usage_percpu"
    if per_cpu.exists():
        return [int(word) for word in per_cpu.read_text().split()]
    lines = (CGROUPS / "cpu.stat").read_text().splitlines()
    micros = next(int(line.split()[1]) for line in lines if line.startswith("usage_usec "))
    cpus = os.cpu_count() or 1
    return [micros * 1000 // cpus] * cpus


class NodeStat:
    """/proc/stat of the node, as containers see it: its own CPU time, and the rest is idle.

    Without it, whatever else runs on this machine would be the system usage of the node, and leave no batch-cpu.
    """

    def __init__(self) -> None:
        self._began = time.monotonic_ns()
        self._file = os.open(PROC_STAT, os.O_RDWR | os.O_CREAT, 0o444)  # one inode: containers have it mounted
        kept = ("ctxt ", "btime ", "processes ", "procs_")
        self._rest = [line for line in Path("/proc/stat").read_text().splitlines() if line.startswith(kept)]
        self.write()

    def write(self) -> None:
        """Write the numbers of this moment."""
        elapsed = (time.monotonic_ns() - self._began) // NS_PER_TICK
        used = [each // NS_PER_TICK for each in used_ns()]
        rows = [("", sum(used), elapsed * len(used) - sum(used))]
        rows += [(str(cpu), each, elapsed - each) for cpu, each in enumerate(used)]
        lines = [f"cpu{name} {busy} 0 0 {max(idle, 0)} 0 0 0 0 0 0" for name, busy, idle in rows]
        text = "\n".join([*lines, *self._rest, ""]).encode()
        os.pwrite(self._file, text, 0)
        os.ftruncate(self._file, len(text))


class Init:
    """The programs of the node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, int] = {}

    def start(self, name: str, argv: list[str]) -> int:
        """Start a program, with the environment of this process."""
        log = self.folder / "log" / f"{name}.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=actions, setsid=True, setsigmask=())
        self.running[name] = pid
        return pid

    def answer(self, request: dict[str, Any]) -> Any:
        """Do what a request asks for."""
        if "start" in request:
            return self.start(request["name"], request["start"])
        if "kill" in request:
            pid = self.running.get(request["kill"], 0)
            if pid:
                os.kill(pid, request["signal"])
            return pid
        return self.running

    def reap(self) -> None:
        """Collect all processes that have ended; orphans become children of this process."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.running = {name: each for name, each in self.running.items() if each != pid}

    def serve(self) -> None:
        """Answer requests until this process is killed."""
        readable, writable = socket.socketpair()
        for end in (readable, writable):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, _wake_up)
        signal.set_wakeup_fd(writable.fileno())
        os.chdir(self.folder)  # paths of sockets are short
        Path(SOCKET).unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX)
        server.bind(SOCKET)
        server.listen()
        selector = selectors.DefaultSelector()
        selector.register(readable, selectors.EVENT_READ)
        selector.register(server, selectors.EVENT_READ)
        stat = NodeStat()
        while True:
            stat.write()
            for key, _ in selector.select(STAT_SECONDS):
                if key.fileobj is server:
                    self.accept(server)
                else:
                    readable.recv(4096)
                    self.reap()

    def accept(self, server: socket.socket) -> None:
        """Answer one connection."""
        connection, _ = server.accept()
        with connection:
            request = connection.recv(LONGEST_REQUEST)
            if request:
                connection.sendall(json.dumps(self.answer(json.loads(request))).encode())


def _wake_up(number: int, frame: object) -> None:
    """Do nothing: the wakeup descriptor ends `select`."""


if __name__ == "__main__":
    node = Path(sys.argv[1])
    prepare_file_systems(node)
    Init(node).serve()
