"""What the kubelet has given to the containers of its pods, by the pod-resources socket: CPUs of their own.

    socket   every list of pods         names pods by namespace and name, containers by name
    file     cpu_manager_state          names pods by uid; read once a minute

Both tell of the same CPU manager; what the socket says of a container is newer. source    agent spec, 4.6, 4.7 (1)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from koordcore.values.cpuset import CpuSet, format_cpuset

from koord_agent.domain.state.pods import AgentPod


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldByPod:
    """One pod as the socket lists it.

    cpus    container -> CPUs that it has for itself, not empty; containers on shared CPUs are left out
    """

    namespace: str
    name: str
    cpus: Mapping[str, CpuSet]


CpuEntries = Mapping[str, Mapping[str, str]]
"""pod uid -> container -> CPU list"""


def pinned_cpus(of_file: CpuEntries, held: Sequence[HeldByPod], pods: Iterable[AgentPod]) -> CpuEntries:
    """What the CPU manager has pinned, by both sources.

    pods      gives the names their uids; of several of one name (the older one is ending) the newest that does not end
    returns   a pod of the socket that nobody knows is left out: `unknown_pods` names it
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
    """`namespace/name` of the pods that run here by the socket and are known neither to the log nor to the list."""
    known = {(pod.namespace, pod.name) for pod in pods}
    return tuple(sorted(f"{one.namespace}/{one.name}" for one in held if (one.namespace, one.name) not in known))


def _by_name(pods: Iterable[AgentPod]) -> Mapping[tuple[str, str], AgentPod]:
    found: dict[tuple[str, str], AgentPod] = {}
    for pod in sorted(pods, key=lambda pod: (not pod.is_terminating, pod.created_ms or 0, pod.uid)):
        found[pod.namespace, pod.name] = pod
    return found
