"""Kills of containers for lack of memory: facts of the node, and times in its usage reports for the recommender.

Two sources, because each misses some. The counter `oom_kill` of a container's cgroup shows kills of single processes,
but the cgroup is often gone before it is read. The kubelet's last state shows how the container itself ended. Of a pod
whose containers are unknown (no kubelet), the counter of its own cgroup counts; on cgroup v1, it has no kills below it.

Source: reality, 4.16.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from koordcore.events.nodestate import ContainersOomKilled, OomKill
from koordcore.protocol.pod_resources import MEMORY
from koordcore.values.timestamps import rfc3339

from koord_agent.domain.kernel.counters import parse_flat
from koord_agent.domain.node.pods import AgentContainer, AgentPod

OOM_CONTROL: Final = "memory.oom_control"
"""File with the counter `oom_kill`; on cgroup v2, `memory.events`."""


def oom_kill_count(text: str | None) -> int | None:
    """From memory.oom_control or memory.events; None if the text has no counter (kernels before 4.13)."""
    return None if text is None else parse_flat(text).get("oom_kill")


@dataclass(slots=True)
class OomKills:
    """Which containers were killed. A kill that both sources show counts once."""

    _counts: dict[str, int] = field(default_factory=dict[str, int])
    """Id of a container, or UID of a pod whose containers are unknown -> its counter when it was last read."""
    _counted: dict[str, int] = field(default_factory=dict[str, int])
    """Id of a container -> time of the last kill that its counter showed, in milliseconds."""
    _last_ms: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """UID of a pod -> name of a container -> time of its last kill, in milliseconds."""
    _followed: frozenset[str] = frozenset()
    """UIDs of the pods whose containers were known at the last look: what is new in them has begun since."""
    _since_ms: int | None = None
    """Time of the first look, in milliseconds."""

    def look(self, pods: Iterable[AgentPod], counts: Mapping[str, int], now_ms: int) -> tuple[ContainersOomKilled, ...]:
        """Return the fact about kills since the last look.

        `counts`: id of a container, or UID of a pod whose containers are unknown -> its counter.

        What happened before the first look is in `last`, and in no fact: the agent before may have told it.
        """
        if self._since_ms is None:
            self._since_ms = now_ms
        kills: list[OomKill] = []
        present: set[str] = set()
        followed: set[str] = set()
        for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid)):
            containers: Iterable[AgentContainer] = (*pod.containers, *pod.ephemeral)
            if containers:
                followed.add(pod.uid)
            elif pod.uid in counts:
                containers = (AgentContainer(name="", container_id=pod.uid, limits=pod.limits),)
            for container in containers:
                present.add(container.container_id)
                found = self._new_kill(pod, container, counts.get(container.container_id), now_ms)
                if found is not None:
                    kills.append(found)
        self._counts = {identity: count for identity, count in self._counts.items() if identity in present}
        self._counted = {identity: at for identity, at in self._counted.items() if identity in present}
        self._followed = frozenset(followed)
        return (ContainersOomKilled(kills=kills),) if kills else ()

    def last(self) -> dict[str, dict[str, str]]:
        """UID of a pod -> name of a container, "" if unknown -> RFC 3339 time of its last kill.

        Init containers are left out.
        """
        return {uid: {name: _text(at_ms) for name, at_ms in killed.items()} for uid, killed in self._last_ms.items()}

    def forget(self, uids: Iterable[str]) -> None:
        """UIDs of pods that have ended."""
        for uid in uids:
            self._last_ms.pop(uid, None)

    def _new_kill(self, pod: AgentPod, container: AgentContainer, count: int | None, now_ms: int) -> OomKill | None:
        identity, of_pod = container.container_id, self._last_ms.get(pod.uid, {})
        at_ms, number = None, 0
        if identity and count is not None:
            before = self._counts.get(identity, 0 if pod.uid in self._followed else count)
            self._counts[identity] = count
            if count > before:
                at_ms, number = now_ms, count - before
                self._counted[identity] = now_ms
        end = container.oom_end
        if end is not None and end.container_id not in self._counted and end.at_ms > of_pod.get(container.name, -1):
            at_ms, number = max(at_ms or 0, end.at_ms), number + (end.at_ms >= (self._since_ms or 0))
        if at_ms is None:
            return None
        if container.is_sidecar or not container.is_init:
            self._last_ms.setdefault(pod.uid, {})[container.name] = at_ms
        if not number:
            return None
        return OomKill(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            container=container.name,
            at=_text(at_ms),
            limit_bytes=max(container.limits.get(MEMORY, 0), 0),
            kills=number,
        )


def _text(at_ms: int) -> str:
    return rfc3339(datetime.fromtimestamp(at_ms / 1000, UTC))
