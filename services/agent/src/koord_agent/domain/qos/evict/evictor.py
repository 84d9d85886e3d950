"""Evict the pods that strategies request. A strategy that evicted pods then pauses for some time (it *rests*).

The pass over the tasks is `eviction.release`. The facts also request the eviction from the component that runs the
pods. Source: agent spec, 12.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from koordcore.events.nodestate import EvictedPod, PodsEvictedByAgent

from koord_agent.domain.qos.evict.eviction import EvictionTask, release
from koord_agent.domain.state.node_look import NodeLook

EVICTED_LATELY_MS = 120_000


@dataclass(slots=True)
class Evictor:
    """Evicts pods of one node, and remembers which strategies pause. Only the node's `QosCycle` uses it.

    Attributes:
        rest_ms: Strategy -> milliseconds for which it pauses after an eviction.
        rest_at_start: Strategies that also pause after the start of the agent.
    """

    rest_ms: Mapping[str, int]
    rest_at_start: tuple[str, ...] = ()
    _evicted_ms: dict[str, int] = field(default_factory=dict[str, int])
    _rests_until_ms: dict[str, int] = field(default_factory=dict[str, int])
    _has_started: bool = False

    def resting(self, now_ms: int) -> frozenset[str]:
        """Return the names of the strategies that pause now after an eviction.

        A clock that is set back does not prolong a pause.
        """
        if not self._has_started:
            self._has_started = True
            self._rests_until_ms.update((name, now_ms + self.rest_ms[name]) for name in self.rest_at_start)
        until = self._rests_until_ms
        return frozenset(name for name in until if 0 < until[name] - now_ms <= self.rest_ms[name])

    def evict(
        self, look: NodeLook, evictions: Mapping[str, Sequence[EvictionTask]], end: Callable[[str], bool]
    ) -> tuple[PodsEvictedByAgent, ...]:
        """Evict pods until the tasks of all strategies are done or no candidate is left.

        Args:
            look: Snapshot of the node.
            evictions: Name of a strategy -> its tasks.
            end: Ends the processes of a pod on this node. If it returns False, the eviction remains a request.

        Returns:
            One fact for each feature that evicted pods.
        """
        # a clock that was set back must not hide pods that were evicted long ago
        lately = self._evicted_ms.items()
        self._evicted_ms = {uid: at for uid, at in lately if 0 <= look.now_ms - at < EVICTED_LATELY_MS}
        facts: list[PodsEvictedByAgent] = []
        for name, tasks in evictions.items():
            done = self._release(look, tasks, end)
            if done:
                self._rests_until_ms[name] = look.now_ms + self.rest_ms[name]
                facts.extend(done)
        return tuple(facts)

    def _release(
        self, look: NodeLook, tasks: Sequence[EvictionTask], end: Callable[[str], bool]
    ) -> list[PodsEvictedByAgent]:
        ended: dict[str, bool] = {}

        def evict(_task: EvictionTask, uid: str) -> bool:
            ended[uid] = end(uid)
            self._evicted_ms[uid] = look.now_ms
            return True

        done = release(tasks, already_evicted=frozenset(self._evicted_ms), evict=evict)
        by_feature: dict[str, list[EvictedPod]] = {}
        for victim in done.victims:
            pod = look.by_uid[victim.uid]
            by_feature.setdefault(victim.feature, []).append(
                EvictedPod(
                    uid=victim.uid,
                    namespace=pod.namespace,
                    name=pod.name,
                    releases=victim.releases,
                    ended=ended[victim.uid],
                )
            )
        return [
            PodsEvictedByAgent(
                feature=task.feature,
                pods=by_feature[task.feature],
                reason=task.reason,
                to_release=task.to_release,
                unmet=done.unmet.get(task.feature, {}),
            )
            for task in tasks
            if task.feature in by_feature
        ]
