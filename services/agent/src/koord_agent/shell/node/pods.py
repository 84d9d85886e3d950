"""Start and end the pods of a node as the desired state requires, and publish each start and end once.

Pods of the log and of the kubelet are merged; the kubelet's object takes precedence. A pod that was evicted here is not
started again.
"""

import posixpath
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from koordcore.events.envelope import Event
from koordcore.events.nodestate import PodsStarted, PodsStopped
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.node.desired import DesiredView
from koord_agent.domain.node.kubelet import KnownPods
from koord_agent.domain.node.pods import AgentPod, pods_of_node
from koord_agent.shell.host.host import Host


class PodRunner(Protocol):
    """Starts and ends pods on a simulated host. On a real machine the kubelet does it."""

    def start_pod(self, pod: AgentPod) -> None:
        """Raises InvalidInput: The simulation annotation of the pod is invalid."""
        ...

    def stop_pod(self, uid: str) -> bool:
        """False if the pod does not run on this machine."""
        ...


StopContainers = Callable[[Iterable[str]], tuple[str, ...]]
"""Function that stops containers by their ids with the machine's runtime, and returns errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodControl:
    # Starts and ends pods. None means that a kubelet does, and a pod counts as started once its cgroup exists.
    runner: PodRunner | None = None
    announced: Iterable[str] = ()  # UIDs of pods whose start is already in the log, after a restart of the agent
    # Ends containers of evicted pods that a kubelet started. None means the eviction stays a request.
    stop: StopContainers | None = None


BY_KUBELET: Final = PodControl()


class PodEnd(NamedTuple):
    ended: bool  # Whether its processes were ended here. Otherwise the eviction remains a request.
    problems: tuple[str, ...] = ()  # Errors, one sentence each


class PodsRun(NamedTuple):
    facts: tuple[Event, ...]  # Facts to append, in order
    problems: tuple[str, ...]  # Present errors, one sentence each. An error that lasts is in every result.


class NodePods:
    """Starts and ends the pods of one node, and remembers which starts and ends were published. Only the agent uses it.

    `forget` is called with the UIDs of pods that have ended. The other arguments are those of `PodControl`.
    """

    def __init__(
        self,
        host: Host,
        *,
        runner: PodRunner | None,
        announced: Iterable[str],
        forget: Callable[[Iterable[str]], None],
        stop: StopContainers | None = None,
    ) -> None:
        self.all: Mapping[str, AgentPod] = {}
        """Pods by UID that can have a cgroup directory of their own."""
        self.running: set[str] = set()
        """UIDs of the pods that run here as far as is known."""
        self.uid_of: Mapping[str, str] = {}
        """The kubelet's UID of each pod in `all` -> its UID there."""
        self._host = host
        self._runner = runner
        self._announced = set(announced)
        self._forget = forget
        self._stop = stop
        self._evicted: set[str] = set()
        self._taken_of: tuple[Mapping[str, AgentPod], Mapping[str, AgentPod]] | None = None
        self._refused: tuple[str, ...] = ()
        self._is_settled = False
        """Whether a call changes nothing while the pods are the same."""

    def end(self, uid: str) -> PodEnd:
        """With the `PodRunner` on a simulated host, otherwise by stopping the containers of the evicted pod."""
        if self._runner is not None:
            self._evicted.add(uid)
            return PodEnd(self._runner.stop_pod(uid))
        pod = self.all.get(uid)
        if pod is None or self._stop is None:
            return PodEnd(ended=False)
        containers = self._containers(pod)
        problems = self._stop(containers)
        return PodEnd(bool(containers) and not problems, problems)

    def _containers(self, pod: AgentPod) -> list[str]:
        """Ids of the running containers, from the kubelet or else from the pod's directories."""
        if pod.created:
            return [each.container_id for each in pod.created if each.is_running]
        layout = self._host.layout
        below = self._host.tree(layout.pod_directory(pod.kube_qos, pod.cgroup_uid))[1:]
        found = (layout.container_id(posixpath.basename(directory)) for directory in below)
        return [identity for identity in found if identity is not None]

    def run(self, desired: DesiredView, known: KnownPods) -> PodsRun:
        """Start desired pods that do not run, and end pods that are not desired. A second call changes nothing.

        On a simulated host, a pod that did not run before waits in two cases: while the desired state misses facts of
        the node's ledger, because the pod may have left; and while its volume claims are unbound.
        """
        taken = self._taken_of
        self._take(desired.pods, known.pods)
        if self._is_settled and self._taken_of is taken:
            return PodsRun((), self._refused)
        problems = list(self._refused)
        wanted = {uid: pod for uid, pod in self.all.items() if uid in desired.pods}
        gone = sorted((self.running | self._announced) - wanted.keys())
        for uid in gone:
            if self._runner is not None:
                self._runner.stop_pod(uid)
            self.running.discard(uid)
            self._evicted.discard(uid)
        if gone:
            self._forget(gone)
        waiting = [pod for uid, pod in wanted.items() if uid not in self.running]
        if self._runner is not None:
            held = desired.pods if desired.misses_facts else desired.desired.unbound
            waiting = [pod for pod in waiting if pod.uid in self._announced or pod.uid not in held]
        self.running.update([pod.uid for pod in waiting if self._start(pod, problems)])
        to_announce = sorted(self.running - self._announced)
        ended = sorted(set(gone) & self._announced)
        self._announced = (self._announced | self.running) - set(gone)
        facts: list[Event] = []
        if ended:
            facts.append(PodsStopped(pods=ended))
        if to_announce:
            facts.append(PodsStarted(pods=to_announce))
        # a simulated pod may wait for something else, such as a volume
        self._is_settled = self._runner is None and self.running == wanted.keys()
        return PodsRun(tuple(facts), tuple(problems))

    def not_said(self, facts: Iterable[Event]) -> None:
        """The outbox refused these facts about starts and ends. They are published again."""
        self._is_settled = False
        for fact in facts:
            if isinstance(fact, PodsStarted):
                self._announced -= set(fact.pods)
            elif isinstance(fact, PodsStopped):
                self._announced |= set(fact.pods)

    def _take(self, placed: Mapping[str, AgentPod], known: Mapping[str, AgentPod]) -> None:
        """Replace the pods that the agent knows, and the errors about pods that cannot have a cgroup directory.

        `known`, from the kubelet, takes precedence over `placed`, from the log.
        """
        if self._taken_of is not None and self._taken_of[0] is placed and self._taken_of[1] is known:
            return
        self._taken_of = placed, known
        wanted = pods_of_node(placed, known)
        layout = self._host.layout
        taken: dict[str, AgentPod] = {}
        refused: list[str] = []
        directories: set[str] = set()
        for uid, pod in wanted.items():
            try:
                directory = layout.pod_directory(pod.kube_qos, pod.cgroup_uid)
            except InvalidInput as error:
                refused.append(f"pod {pod.namespace}/{pod.name}: not run: {error}")
                continue
            if directory in directories:
                refused.append(f"pod {pod.namespace}/{pod.name}: not run: another pod has the directory {directory}")
                continue
            directories.add(directory)
            taken[uid] = pod
        # pods that only the kubelet knew end here; those of the log are forgotten when their end is said
        if left := [uid for uid in self.all if uid not in taken and uid not in self.running]:
            self._forget(left)
        self.all = taken
        self.uid_of = {pod.cgroup_uid: uid for uid, pod in taken.items()}
        self._refused = tuple(refused)

    def _start(self, pod: AgentPod, problems: list[str]) -> bool:
        if pod.uid in self._evicted:
            return True
        if self._runner is None:
            return bool(self._host.tree(self._host.layout.pod_directory(pod.kube_qos, pod.cgroup_uid)))
        try:
            self._runner.start_pod(pod)
        except InvalidInput as error:
            problems.append(f"pod {pod.namespace}/{pod.name}: {error}; it runs with the default profile")
            self._runner.start_pod(replace(pod, usage_profile=""))
        return True
