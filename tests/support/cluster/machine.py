"""A node on this machine in namespaces of its own: mounts, processes, network, host name and cgroups.

Its programs see a machine of their own: /run, /var/lib/kubelet and /sys/fs/cgroup are the node's. When process 1 of the
node is killed, everything but its folder and its empty cgroups is gone. So a reboot of the node is `stop` and `start`.

`node_init` is process 1. Next module: cluster.py.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from koordcore.embedded.identity import ProcessIdentity, identify, is_alive, send_signal
from koordcore.embedded.process import log_tail
from support.cluster import node_init
from support.until import until_blocking

CGROUP: Final = "koordcluster"
HOST_INTERFACE: Final = "koordcluster0"
HOST_ADDRESS: Final = "10.199.0.1"
NODE_NETWORK: Final = "10.199.0.0/24"
POD_NETWORK: Final = "10.244.0.0/16"
BRIDGE: Final = "koordnode0"
NEEDED: Final = ("unshare", "nsenter", "ip", "iptables", "runc")
PROC_SYS: Final = Path("/proc/sys")
NAMESPACES: Final = ("mount", "pid", "net", "uts", "cgroup")
KUBELETS_SYSCTLS: Final = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""Settings of the whole machine that a kubelet writes, whatever its namespaces are."""


def missing_rights() -> str:
    """The reason why no node can run on this machine, "" if there is none."""
    if os.geteuid() != 0:
        return "namespaces and cgroups need root"
    absent = [name for name in NEEDED if shutil.which(name) is None]
    return f"{', '.join(absent)} not installed (apt-get install iproute2 iptables runc)" if absent else ""


def run(*words: str, check: bool = True) -> str:
    """Run a program and return its output.

    Raises:
        AssertionError: It failed. The message has its words and what it printed.
    """
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{' '.join(words)}: {done.stderr or done.stdout}"
    return done.stdout


def remove_cgroups(path: str) -> bool:
    """Remove a cgroup below `CGROUP` and those below it, where no process is left. Return whether all are gone."""
    left = 0
    for root in (Path(target) for target, _, _ in node_init.cgroup_mounts()):
        for directory, _, _ in os.walk(root / path, topdown=False):
            try:
                Path(directory).rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                left += 1
        with contextlib.suppress(OSError):  # absent, or another node is below it
            (root / CGROUP).rmdir()
    return left == 0


@dataclass(frozen=True)
class Machine:
    """A node.

    Attributes:
        number: 1 for the first node, which also has the control plane.
        folder: Absolute folder of its files.
    """

    number: int
    folder: Path

    @property
    def name(self) -> str:
        """Name of the Node."""
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        """Address of the node; this machine reaches it, too."""
        return f"10.199.0.{10 + self.number}"

    @property
    def pod_range(self) -> str:
        """Addresses of its pods."""
        return f"10.244.{self.number}.0/24"

    @property
    def cgroup(self) -> str:
        """Its cgroup on this machine, which its programs see as the root."""
        return f"{CGROUP}/{self.name}"

    def log(self, program: str) -> Path:
        """Log of a program of the node."""
        return self.folder / "log" / f"{program}.log"

    # 1. The node as a whole

    def start(self) -> None:
        """Make the namespaces, and connect their network with this machine."""
        made = [Path(seen) for seen in node_init.OWN_FOLDERS.values() if not Path(seen).exists()]
        for path in (*(self.folder / own for own in (*node_init.OWN_FOLDERS, "log")), *made):
            path.mkdir(parents=True, exist_ok=True)
        self._note("made", [*self._noted("made", list[str]()), *map(str, made)])
        sysctls = {name: (PROC_SYS / name).read_text() for name in KUBELETS_SYSCTLS}
        self._note("sysctls", self._noted("sysctls", sysctls))
        joined = [str(directory / "cgroup.procs") for directory in self._make_cgroups()]
        join = f'for file in {" ".join(joined)}; do echo $$ >$file; done; exec "$0" "$@"'
        spaces = [f"--{name}" for name in NAMESPACES]
        init = [sys.executable, "-I", "-S", node_init.__file__, str(self.folder)]
        (self.folder / node_init.SOCKET).unlink(missing_ok=True)
        with self.log("init").open("ab") as log:
            unshare = subprocess.Popen(
                ["sh", "-c", join, "unshare", *spaces, "--fork", "--kill-child", "--mount-proc", *init],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

        def require_running() -> None:
            assert unshare.poll() is None, log_tail(self.log("init"))

        until_blocking((self.folder / node_init.SOCKET).exists, "process 1 of the node", check=require_running)
        children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
        process = identify(int(children[0]))
        assert process is not None
        self._note("init", {"pid": process.pid, "started": process.started})
        run(*self.words("hostname", self.name))
        self._connect(process.pid)

    def stop(self) -> None:
        """Kill everything on the node at once, as a power cut does. No-op if it does not run."""
        process = self.process
        if process is not None and send_signal(process, signal.SIGKILL):
            until_blocking(lambda: not is_alive(process), "the node has ended")
        until_blocking(lambda: remove_cgroups(self.cgroup), "the cgroups of the node are removed")

    def remove(self) -> None:
        """Stop the node and remove its folder, and the folders on this machine that `start` made to mount over."""
        self.stop()
        for name, value in self._noted("sysctls", dict[str, str]()).items():
            (PROC_SYS / name).write_text(value)
        for path in reversed(self._noted("made", list[str]())):
            Path(path).rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def process(self) -> ProcessIdentity | None:
        """Process 1, with its id on this machine; None if the node was never started."""
        noted: dict[str, Any] = self._noted("init", dict[str, Any]())
        return ProcessIdentity(**noted) if noted else None

    @property
    def is_running(self) -> bool:
        """Whether the node is up."""
        process = self.process
        return process is not None and is_alive(process)

    # 2. Programs on it

    def words(self, *argv: str) -> list[str]:
        """Return the words that run a program inside of the node's namespaces, but not in its cgroup."""
        process = self.process
        assert process is not None, f"{self.name} does not run"
        return ["nsenter", "--target", str(process.pid), *(f"--{name}" for name in NAMESPACES), *argv]

    def run(self, *argv: str, check: bool = True) -> str:
        """Run a program on the node, and return its output."""
        return run(*self.words(*argv), check=check)

    def spawn(self, name: str, argv: Sequence[str]) -> None:
        """Start a program on the node that stays when this process ends."""
        self._ask({"start": list(argv), "name": name})

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a program that `spawn` has started, and wait until it has ended."""
        self._ask({"kill": name, "signal": int(number)})
        until_blocking(lambda: name not in self.running(), f"{name} has ended")

    def running(self) -> dict[str, int]:
        """Name -> process id on the node, of the programs that run."""
        found: dict[str, int] = self._ask({"running": True})
        return found

    def _ask(self, request: Mapping[str, Any]) -> Any:
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(f"/proc/self/fd/{folder}/{node_init.SOCKET}")
                client.sendall(json.dumps(request).encode())
                return json.loads(client.recv(node_init.LONGEST_REQUEST))
        finally:
            os.close(folder)

    # 3. Cgroups

    def cgroup_file(self, hierarchy: str, path: str) -> Path:
        """A file of the node's cgroups as this machine sees it, such as ("cpu", "kubepods/cpu.shares")."""
        return node_init.CGROUPS / hierarchy / self.cgroup / path.lstrip("/")

    def _make_cgroups(self) -> list[Path]:
        made: list[Path] = []
        for root in (Path(target) for target, _, _ in node_init.cgroup_mounts()):
            above = root
            for part in self.cgroup.split("/"):
                directory = above / part
                directory.mkdir(exist_ok=True)
                for name in ("cpuset.cpus", "cpuset.mems"):
                    if (directory / name).exists() and (above / name).exists():
                        (directory / name).write_text((above / name).read_text())
                above = directory
            made.append(above)
        return made

    # 4. Network

    def _connect(self, process: int) -> None:
        """Connect the node by a pair of interfaces that the kernel removes with the node."""
        run("ip", "link", "add", HOST_INTERFACE, "type", "veth", "peer", "name", "eth0", "netns", str(process))
        run("ip", "address", "add", f"{HOST_ADDRESS}/24", "dev", HOST_INTERFACE)
        run("ip", "link", "set", HOST_INTERFACE, "up")
        for words in (
            "link set lo up",
            f"link add {BRIDGE} type bridge",
            f"address add {self.address}/24 dev {BRIDGE}",
            f"link set {BRIDGE} up",
            f"link set eth0 master {BRIDGE} up",
            f"route add default via {HOST_ADDRESS}",
        ):
            self.run("ip", *words.split())
        self.run("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")

    # 5. Notes that outlive this process

    def _note(self, name: str, value: object) -> None:
        (self.folder / f"{name}.json").write_text(json.dumps(value))

    def _noted(self, name: str, default: Any) -> Any:
        file = self.folder / f"{name}.json"
        return json.loads(file.read_text()) if file.exists() else default
