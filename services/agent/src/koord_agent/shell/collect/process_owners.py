"""Find the containers of processes by the names of their cgroups.

Source: agent spec, 6.12.
"""

from collections.abc import Iterable
from pathlib import Path

from koord_agent.domain.metrics.gpu_usage import GpuOwner
from koord_agent.domain.state.pods import AgentPod
from koord_agent.shell.host.kernel_files import read_kernel_file


def owners_of(pids: Iterable[int], pods: Iterable[AgentPod], proc: Path) -> dict[int, GpuOwner]:
    """Return process -> its container. Processes outside of known containers are left out.

    Args:
        pids: Ids of processes.
        pods: The pods of the node.
        proc: Folder of procfs.
    """
    wanted = sorted(pids)
    if not wanted:
        return {}
    owners = {
        container.container_id.rpartition("/")[2]: GpuOwner(pod.uid, container.container_id)
        for pod in pods
        for container in pod.containers
        if container.container_id
    }
    found: dict[int, GpuOwner] = {}
    for pid in wanted:
        text = read_kernel_file(str(proc / str(pid) / "cgroup")) or ""
        owner = next((owners[name] for name in _names(text) if name in owners), None)
        if owner is not None:
            found[pid] = owner
    return found


def _names(text: str) -> list[str]:
    """Return the names of all directories in /proc/<pid>/cgroup, without what systemd puts around the id."""
    parts = (part for line in text.splitlines() for part in line.rpartition(":")[2].split("/"))
    return [part.removesuffix(".scope").rpartition("-")[2] for part in parts if part]
