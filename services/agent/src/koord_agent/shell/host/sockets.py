"""Paths of sockets: the kubelet's pod resources, and the container runtimes."""

from collections.abc import Mapping
from typing import Final

POD_RESOURCES_SOCKET: Final = "pod-resources/kubelet.sock"
"""Path of the pod-resources socket below the folder of the kubelet."""
CONTAINERD: Final = "containerd"
DOCKER: Final = "docker"
RUNTIME_SOCKETS: Final[Mapping[str, str]] = {
    CONTAINERD: "containerd/containerd.sock",
    DOCKER: "docker.sock",
    "pouch": "pouchcri.sock",
    "cri-o": "crio/crio.sock",
}
"""Runtime -> path of its socket below /run or /var/run."""
