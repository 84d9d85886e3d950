"""CPUs that the kubelet assigned exclusively to containers, from its pod-resources socket and its state file.

    socket   every list of pods         names pods by namespace and name, containers by name
    file     cpu_manager_state          names pods by UID; read once a minute

Both show the same CPU manager. The socket is newer.

Source: agent spec, 4.6, 4.7 (1).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from koordcore.values.cpuset import CpuSet, format_cpuset

from koord_agent.domain.state.pods import AgentPod


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldByPod:
    """The exclusive CPUs of one pod in the answer of the kubelet's pod-resources socket.

    Attributes:
        cpus: Container -> exclusive CPUs. Containers on shared CPUs are absent.
    """

    namespace: str
    name: str
    cpus: Mapping[str, CpuSet]


CpuEntries = Mapping[str, Mapping[str, str]]
"""Pod UID -> container -> CPU list."""


def pinned_cpus(of_file: CpuEntries, held: Sequence[HeldByPod], pods: Iterable[AgentPod]) -> CpuEntries:
    """Merge the exclusive CPUs of both sources: UID of a pod -> container -> CPU list. The socket takes precedence.

    Args:
        of_file: Content of the state file.
        held: Content of the socket.
        pods: Pods that give names their UIDs. Of several pods with one name, the newest that is not terminating
            counts.

    Returns:
        The CPUs. Unknown pods of the socket are left out; `unknown_pods` returns them.
    """
    by_name = _by_name(pods)
    merged = {uid: dict(entries) for uid, entries in of_file.items()}
    for one in held:
        pod = by_name.get((one.namespace, one.name))
        if pod is not None and one.cpus:
            cpus = {container: format_cpuset(found) for container, found in one.cpus.items()}
            merged[pod.uid] = {**merged.get(pod.uid, {}), **cpus}
    return merged


def unknown_pods(held: Iterable[HeldByPod], pods: Iterable[AgentPod]) -> tuple[str, ...]:
    """Return `namespace/name` of the pods in the kubelet's pod-resources socket that the agent does not know.

    Args:
        held: Pods with their CPUs and devices, as the socket lists them.
        pods: All pods that the agent knows, from the log or the kubelet.
    """
    known = {(pod.namespace, pod.name) for pod in pods}
    return tuple(sorted(f"{one.namespace}/{one.name}" for one in held if (one.namespace, one.name) not in known))


def _by_name(pods: Iterable[AgentPod]) -> Mapping[tuple[str, str], AgentPod]:
    found: dict[tuple[str, str], AgentPod] = {}
    for pod in sorted(pods, key=lambda pod: (not pod.is_terminating, pod.created_ms or 0, pod.uid)):
        found[pod.namespace, pod.name] = pod
    return found
