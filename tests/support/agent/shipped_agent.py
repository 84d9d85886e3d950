"""The agent in a container as `k8s/nodes/agent.yaml` describes it, on a real container runtime; for tests.

The runtime gets the security context and the mounts of the manifest, translated as a kubelet does. What differs from a
cluster: folders of a node lie below the folder of the test, the programs are those of this machine instead of an image,
and no mount receives later mounts of the machine, because this needs a machine with shared mounts.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from koordctl.stack.containers import IMAGE
from support.agent.cri import NODE_NAMESPACE, Containers, first_text, message

ROOT = Path(__file__).parents[3]
Json = dict[str, Any]
MASKED = (
    *(f"/proc/{name}" for name in ("acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "timer_list")),
    *("/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"),
)
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
"""Paths that a kubelet closes to containers without privileges."""
FOLDERS = {
    "/var/lib/koordlet": "agent",
    "/var/run/koordlet": "sockets",
    "/etc/runtime/hookserver.d": "hookserver.d",
    "/var/lib/kubelet": "kubelet",
    "/var/log/koordlet": "audit",
    "/var/run/nri": "nri",
    "/run/containerd": "runtime",
    "/run/crio": "crio",
}
"""Folder of a node -> folder of the test."""
MACHINE = ("/sys/", "/proc")
"""Folders of a node that are those of this machine."""
PROGRAMS = ("/usr", "/lib", "/lib64", sys.base_prefix, str(ROOT))


def shipped_pod(*, overlay: str = "k8s/nodes/agent.yaml", name: str = "koord-agent") -> Json:
    """The spec of the agent's pod, or of another DaemonSet's."""
    found = yaml.safe_load_all((ROOT / overlay).read_text(encoding="utf-8"))
    (daemon_set,) = (item for item in found if item["kind"] == "DaemonSet" and item["metadata"]["name"] == name)
    spec: Json = daemon_set["spec"]["template"]["spec"]
    return spec


def host_folder(folder: Path, path: str) -> Path:
    """Where the folder of a node lies."""
    if path.startswith(MACHINE):
        return Path(path)
    return folder / FOLDERS[path]


class ShippedAgent:
    """A container with the rights of the shipped agent.

    Args:
        folder: Folder of the test, which holds the folders of the node.
        pod: Spec of the agent's pod.
    """

    def __init__(self, containers: Containers, folder: Path, pod: Json) -> None:
        self._containers, self._folder, self._pod = containers, folder, pod
        self.log = folder / "shipped"
        (self.container,) = pod["containers"]
        self._sandboxes: list[str] = []

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> str:
        """Run a command in such a container. Its output is in `log`, in a file of its name. Return its id."""
        self.log.mkdir(exist_ok=True)
        namespaces = message((1, NODE_NAMESPACE), (2, NODE_NAMESPACE if self._pod.get("hostPID") else 0))
        config = message(
            (1, message((1, name), (2, name), (3, "koordinator-nodes"))),
            (3, str(self.log)),
            (8, message((1, f"/shipped-{name}"), (2, message((1, namespaces))))),
        )
        sandbox = first_text(self._containers.call("RunPodSandbox", message((1, config))))
        self._sandboxes.append(sandbox)
        container = message(
            (1, message((1, "agent"))),
            (2, message((1, IMAGE))),
            *((3, word) for word in command),
            *((6, message((1, key), (2, value))) for key, value in environment.items()),
            *((7, mount) for mount in self._mounts()),
            (11, f"{name}.log"),
            (15, message((2, self._security(namespaces)))),
        )
        request = message((1, sandbox), (2, container), (3, config))
        identity = first_text(self._containers.call("CreateContainer", request))
        self._containers.call("StartContainer", message((1, identity)))
        return identity

    def _security(self, namespaces: bytes) -> bytes:
        context: Json = self.container["securityContext"]
        capabilities = context.get("capabilities", {})
        words = [(number, word) for number, key in ((1, "add"), (2, "drop")) for word in capabilities.get(key, ())]
        return message(
            (1, message(*words)),
            (2, int(context.get("privileged", False))),
            (3, namespaces),
            (7, int(context.get("readOnlyRootFilesystem", False))),
            (10, "runtime/default" if context.get("seccompProfile", {}).get("type") == "RuntimeDefault" else ""),
            (11, int(not context.get("allowPrivilegeEscalation", True))),
            *((13, path) for path in MASKED),
            *((14, path) for path in READ_ONLY),
        )

    def _mounts(self) -> list[bytes]:
        volumes: dict[str, Json] = {each["name"]: each for each in self._pod["volumes"]}
        found = [_mount(path, Path(path).resolve(), read_only=True) for path in PROGRAMS]
        for mount in sorted(self.container["volumeMounts"], key=lambda each: str(each["mountPath"])):
            volume = volumes[mount["name"]]
            path = volume.get("hostPath", {}).get("path")
            source = host_folder(self._folder, path) if path else self._folder / f"volume-{mount['name']}"
            if not str(source).startswith(MACHINE):
                source.mkdir(parents=True, exist_ok=True)
            found.append(_mount(mount["mountPath"], source, read_only=mount.get("readOnly", False)))
        return found

    def stop(self) -> None:
        """End and remove all of them."""
        for sandbox in self._sandboxes:
            self._containers.call("StopPodSandbox", message((1, sandbox)))
            self._containers.call("RemovePodSandbox", message((1, sandbox)))
        self._sandboxes.clear()


def _mount(container: str, host: Path, *, read_only: bool) -> bytes:
    return message((1, container), (2, str(host)), (3, int(read_only)))
