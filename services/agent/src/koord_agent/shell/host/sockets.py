"""Sockets of this machine: the kubelet's pod resources, and the container runtimes."""

from collections.abc import Mapping
from typing import Final

POD_RESOURCES_SOCKET: Final = "pod-resources/kubelet.sock"
"""Below the folder of the kubelet."""
CONTAINERD: Final = "containerd"
DOCKER: Final = "docker"
RUNTIME_SOCKETS: Final[Mapping[str, str]] = {
    CONTAINERD: "containerd/containerd.sock",
    DOCKER: "docker.sock",
    "pouch": "pouchcri.sock",
    "cri-o": "crio/crio.sock",
}
"""By runtime, below /run or /var/run."""
