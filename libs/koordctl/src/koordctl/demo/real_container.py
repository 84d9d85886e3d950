"""One real container on this host, as the kubelet would start it: through the CRI proxy, with the agent's hooks.

    submit the pod -> PodPlaced -> RunPodSandbox, CreateContainer, StartContainer -> first line of its output

The first line shows the values that were in force before the first instruction of the program. They are compared with
the placement.
"""

import asyncio
import contextlib
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
from koordcore.embedded.errors import EmbeddedError
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef
from koordcore.events.pod import PodPlaced
from koordcore.protocol import keys
from koordcore.protocol.annotations.allocation import binding_annotations
from koordcore.runtime_api.cri import RUNTIME_SERVICE, cri_messages

from koordctl.access.log import OpenLog
from koordctl.stack.containers import IMAGE, import_image
from koordctl.stack.nodes import REAL_NODE_TAINT, submit

NAMESPACE: Final = "default"
POD: Final = "first-instruction"
PLACED_SECONDS: Final = 120.0
CALL_SECONDS: Final = 120.0
LINE_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.2
CGROUPS: Final = Path("/sys/fs/cgroup")
KUBEPODS: Final = "kubepods"
_CREATE_ATTEMPTS: Final = 10
_V1_TREES: Final = ("cpu", "cpuset", "memory")
_NODE_NETWORK: Final = 2
_MIB: Final = 1024 * 1024
_MEMORY: Final = 128 * _MIB
_OOM_SCORE_ADJ: Final = -997
"""The kubelet's value for Guaranteed pods. containerd raises it to its own value."""
_SHOWN: Final[Mapping[str, str]] = {
    "CPUs": "grep Cpus_allowed_list /proc/self/status | tr -d '\\t' | cut -d: -f2",
    "cpu.shares": "cat /sys/fs/cgroup/cpu/cpu.shares",
    "cpu.cfs_quota_us": "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us",
    "memory.limit_in_bytes": "cat /sys/fs/cgroup/memory/memory.limit_in_bytes",
    "cpu.weight": "cat /sys/fs/cgroup/cpu.weight",
    "cpu.max": "tr ' ' / < /sys/fs/cgroup/cpu.max",
    "memory.max": "cat /sys/fs/cgroup/memory.max",
    "oom_score_adj": "cat /proc/self/oom_score_adj",
    "KOORD_POD": "echo $KOORD_POD",
}
"""Name -> command that shows its value in the container. The files exist in one version of cgroups only."""


class RealContainer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The values that a real container on this host found in force at its first instruction."""

    found: dict[str, str] = {}  # Name -> value in the first line of its output
    decided: dict[str, str] = {}  # Name -> value that the scheduler and the pod's specification decided
    missing: str = ""  # Reason why no container ran; "" if one did

    def sentence(self) -> str:
        if self.missing:
            return f"none: {self.missing}"
        wrong = [
            f"{name} {self.found.get(name)} instead of {value}"
            for name, value in self.decided.items()
            if self.found.get(name) != value
        ]
        shown = ", ".join(f"{name} {value}" for name, value in self.found.items())
        return f"{shown}; {'as decided' if not wrong else '; '.join(wrong)}"


def prepare_cgroups() -> None:
    """Create the root of all pods, as a kubelet does. An agent that starts then uses names of the cgroupfs driver."""
    _create_cgroup(KUBEPODS)


class HostKubelet:
    """Starts one pod on this host in place of a kubelet.

    Args:
        folder: Folder with the sockets and logs.
        proxy: Socket of the CRI proxy.
    """

    def __init__(self, folder: Path, node: str, proxy: Path) -> None:
        self._folder = folder
        self._node = node
        self._proxy = proxy
        self._sandbox = ""
        self._cgroup = ""

    async def run_pod(self, client: httpx.AsyncClient, log: OpenLog) -> RealContainer:
        """Submit a pod for this host, start it when it is placed, and return what its container found.

        If a step fails, the result has the reason, and the demo continues without the container.
        """
        import grpc.aio

        try:
            await asyncio.to_thread(import_image, self._folder)
            await submit(client, [_manifest(self._node)])
            placed = await self._placement(client, log)
            if placed is None:
                return RealContainer(missing=f"the pod was not placed within {PLACED_SECONDS:g} s")
            uid, annotations, cpuset = placed
            self._cgroup = f"{KUBEPODS}/pod{uid}"
            create_pod_cgroup(self._cgroup)
            await self._start(uid, annotations)
            return RealContainer(found=await self._first_line(), decided=_decided(cpuset))
        except (OSError, EmbeddedError, httpx.HTTPError, grpc.aio.AioRpcError, subprocess.SubprocessError) as error:
            return RealContainer(missing=f"{type(error).__name__}: {error}")

    async def remove(self) -> None:
        """End the pod, and remove its cgroups and the root of all pods if it is empty."""
        import grpc.aio

        if self._sandbox:
            with contextlib.suppress(grpc.aio.AioRpcError):
                for call in ("StopPodSandbox", "RemovePodSandbox"):
                    await self._call(call, pod_sandbox_id=self._sandbox)
        for directory in filter(None, (self._cgroup, KUBEPODS)):
            for path in _cgroup_paths(directory):
                with contextlib.suppress(OSError):
                    path.rmdir()

    async def _placement(self, client: httpx.AsyncClient, log: OpenLog) -> tuple[str, dict[str, str], str] | None:
        """Return uid, annotations and CPUs of the placed pod; None if it is not placed in time."""
        end = time.monotonic() + PLACED_SECONDS
        while time.monotonic() < end:
            pod: dict[str, Any] = (await client.get(f"/v1/objects/Pod/{POD}", params={"namespace": NAMESPACE})).json()
            uid = str(pod.get("metadata", {}).get("uid") or "")
            for stored in await log.bus.events.read_aggregate(AggregateRef("pod", uid)) if uid else ():
                event = CATALOGUE.read(stored)
                if isinstance(event, PodPlaced):
                    written = binding_annotations(event.allocation, event.gang, event.annotations, {})
                    return uid, written, event.allocation.cpuset
            await asyncio.sleep(LOOK_SECONDS)
        return None

    async def _start(self, uid: str, annotations: Mapping[str, str]) -> None:
        """Run the sandbox and start the container, with the values that a kubelet computes from the specification."""
        network = {"namespace_options": {"network": _NODE_NETWORK}}
        pod = {
            "metadata": {"name": POD, "uid": uid, "namespace": NAMESPACE},
            "log_directory": str(self._folder / "logs"),
            "labels": {keys.QOS_CLASS: "LSR"},
            "annotations": annotations,
            "linux": {"cgroup_parent": f"/{self._cgroup}", "security_context": network},
        }
        (self._folder / "logs").mkdir(exist_ok=True)
        self._sandbox = (await self._call("RunPodSandbox", config=pod)).pod_sandbox_id
        show = " ".join(f'"{name}=$({command})"' for name, command in _SHOWN.items())
        container = {
            "metadata": {"name": "main"},
            "image": {"image": IMAGE},
            "command": ["/bin/sh", "-c", f"exec 2>/dev/null; echo {show}; exec sleep 3600"],
            "envs": [{"key": "KOORD_POD", "value": POD.encode()}],
            "log_path": "main.log",
            "linux": {
                "resources": {
                    "cpu_period": 100_000,
                    "cpu_quota": 100_000,
                    "cpu_shares": 1024,
                    "memory_limit_in_bytes": _MEMORY,
                    "oom_score_adj": _OOM_SCORE_ADJ,
                },
                "security_context": network,
            },
        }
        created = await self._call(
            "CreateContainer", pod_sandbox_id=self._sandbox, config=container, sandbox_config=pod
        )
        await self._call("StartContainer", container_id=created.container_id)

    async def _first_line(self) -> dict[str, str]:
        """Return name -> value in the first line of the container's output. Values that do not exist are left out."""
        file = self._folder / "logs" / "main.log"
        end = time.monotonic() + LINE_SECONDS
        while not (file.exists() and "\n" in file.read_text()):
            if time.monotonic() > end:
                raise TimeoutError(f"the container printed nothing within {LINE_SECONDS:g} s")
            await asyncio.sleep(LOOK_SECONDS)
        return values_of_line(file.read_text().splitlines()[0])

    async def _call(self, name: str, **fields: object) -> Any:
        """Call the CRI proxy. Answers whose fields are not needed are None."""
        import grpc.aio

        messages = cri_messages()
        answer = messages.get(f"{name}Response")
        async with grpc.aio.insecure_channel(f"unix://{self._proxy}") as channel:
            unary: Any = channel.unary_unary
            call = unary(f"/{RUNTIME_SERVICE}/{name}")
            body = await call(messages[f"{name}Request"](**fields).SerializeToString(), timeout=CALL_SECONDS)
        return None if answer is None else answer.FromString(body)


def values_of_line(line: str) -> dict[str, str]:
    """Return name -> value for the known names in a line `... name=value name=value`. Other parts are left out."""
    return {name: found.group(1) for name in _SHOWN if (found := re.search(rf" {re.escape(name)}=(\S+)", line))}


def _manifest(node: str) -> dict[str, Any]:
    """A pod for this host that gets one CPU of its own."""
    amounts = {"cpu": "1", "memory": f"{_MEMORY // _MIB}Mi"}
    container = {
        "name": "main",
        "image": IMAGE,
        "env": [{"name": "KOORD_POD", "value": POD}],
        "resources": {"requests": amounts, "limits": amounts},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD, "namespace": NAMESPACE, "labels": {keys.QOS_CLASS: "LSR"}},
        "spec": {
            "priorityClassName": "koord-prod",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"key": REAL_NODE_TAINT, "operator": "Exists"}],
            "containers": [container],
        },
    }


def _decided(cpuset: str) -> dict[str, str]:
    """The values that have to be in force: the CPUs of the placement, and no quota beside them."""
    own = int(Path("/proc/self/oom_score_adj").read_text())
    decided = {"CPUs": cpuset, "oom_score_adj": str(max(_OOM_SCORE_ADJ, own)), "KOORD_POD": POD}
    if (CGROUPS / "cgroup.controllers").exists():
        return {**decided, "cpu.max": "max/100000", "memory.max": str(_MEMORY)}
    return {**decided, "cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "memory.limit_in_bytes": str(_MEMORY)}


def _cgroup_paths(directory: str) -> list[Path]:
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS / directory]
    return [tree / directory for tree in CGROUPS.iterdir() if tree.is_dir()]


def create_pod_cgroup(directory: str) -> None:
    """Create the cgroup of a pod. If another demo on this host removes the root of all pods meanwhile, begin again.

    Raises:
        FileNotFoundError: The root was removed at each attempt.
    """
    for left in reversed(range(_CREATE_ATTEMPTS)):
        try:
            _create_cgroup(KUBEPODS)
            _create_cgroup(directory)
        except FileNotFoundError:
            if not left:
                raise
        else:
            return


def _create_cgroup(directory: str) -> None:
    """Create a cgroup in each hierarchy. In version 1, its cpuset is empty at first, so it gets that of its parent."""
    if (CGROUPS / "cgroup.controllers").exists():
        (CGROUPS / directory).mkdir(exist_ok=True)
        return
    for tree in _V1_TREES:
        (CGROUPS / tree / directory).mkdir(exist_ok=True)
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = CGROUPS / "cpuset" / directory / name
        if not file.read_text().strip():
            file.write_text((file.parent.parent / name).read_text())
