"""Set oom_score_adj of the processes of containers whose pod asks for it.

Source: runtime spec, 3.9.
"""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from koordcore.protocol import keys

from koord_agent.domain.hooks.oom_score import oom_score_adj
from koord_agent.domain.node.node_look import NodeLook
from koord_agent.domain.node.pods import AgentPod
from koord_agent.domain.plans.plan import CgroupFile
from koord_agent.shell.hooks.gauges import Gauge
from koord_agent.shell.host.kernel_files import put, read_kernel_file

PROCESSES: Final = "cgroup.procs"
_GONE: Final = (errno.ENOENT, errno.ESRCH)


class OomScores:
    """Only the cycle of its node uses it."""

    def __init__(self, proc: Path, read: Callable[[CgroupFile], str | None]) -> None:
        self._proc = proc
        self._read = read
        self._held: dict[tuple[str, ...], int] = {}

    def apply(self, look: NodeLook) -> list[str]:
        """Write oom_score_adj of the processes whose score differs from their pod's annotation. Return errors."""
        problems: dict[str, None] = {}  # once for a container: its processes come and go
        held: dict[tuple[str, ...], int] = {}
        for pod, container, directory, score in _wanted(look):
            for process in (self._read(CgroupFile(directory, PROCESSES)) or "").split():
                path = self._proc / process / "oom_score_adj"
                current = read_kernel_file(str(path)) if process.isdecimal() else None
                if current is None:
                    continue
                if current.strip() != str(score):
                    try:
                        put(path, str(score))
                    except OSError as error:
                        if error.errno not in _GONE:
                            name = f"container {pod.namespace}/{pod.name}/{container}"
                            problems[f"{name}: oom_score_adj of its processes is not set: {error.strerror}"] = None
                        continue
                held[pod.name, pod.namespace, pod.uid, container] = score
        self._held = held  # replaced as a whole: another thread reads it
        return list(problems)

    def gauges(self) -> Iterator[Gauge]:
        """Only containers with at least one process that has the container's score."""
        for (pod, namespace, uid, container), score in self._held.items():
            labels = {"pod_name": pod, "pod_namespace": namespace, "pod_uid": uid, "container_name": container}
            yield Gauge("container_oom_score_adj", labels, score)


def _wanted(look: NodeLook) -> Iterator[tuple[AgentPod, str, str, int]]:
    """Pod, name, directory and score of the containers whose pod asks for a score."""
    for pod in look.pods:
        if keys.OOM_SCORE_ADJ not in pod.annotations and keys.OOM_SCORE_ADJ_SPEC not in pod.annotations:
            continue
        for container, directory in look.created_containers(pod):
            score = oom_score_adj(pod.annotations, container.name)
            if score is not None and pod.uid not in look.frozen:
                yield pod, container.name, directory, score
