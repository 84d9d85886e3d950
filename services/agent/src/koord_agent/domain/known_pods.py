"""Which pods are on the node, when a kubelet says so: its list, kept while it is silent, frozen where it is not clear.

    ledger (log)    what was placed here          starts and stops are said of these
    kubelet         what is here                  wins in every detail: containers, labels, phase

source    agent spec, 4.3
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.pods import AgentPod, agent_pod_from_json

STALE_MS = 60_000
"""Without a list for this long, nothing is changed any more about pods that only the kubelet knows."""


@dataclass(frozen=True, kw_only=True)
class KnownPods:
    """The kubelet's pods.

    unclear    uids whose newest object could not be read: the last one that could be stays, and they are not touched
    problems   why, one sentence each
    at_ms      time of the last list; None = none so far
    """

    pods: Mapping[str, AgentPod] = field(default_factory=dict[str, AgentPod])
    unclear: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    at_ms: int | None = None

    def frozen(self, now_ms: int) -> frozenset[str]:
        """Uids of the pods that must not be touched at this moment."""
        if self.at_ms is None or abs(now_ms - self.at_ms) > STALE_MS:
            return frozenset(self.pods)
        return self.unclear


def known_after(last: KnownPods, items: Sequence[Mapping[str, Any]], at_ms: int) -> KnownPods:
    """What is known after a list of the kubelet.

    An object that cannot be read keeps the pod as it was known before, frozen; one without a uid is left out.
    """
    pods: dict[str, AgentPod] = {}
    unclear: set[str] = set()
    problems: list[str] = []
    for item in items:
        metadata: object = item.get("metadata")
        uid: object = metadata.get("uid") if isinstance(metadata, Mapping) else None  # type: ignore[reportUnknownMemberType]
        if not isinstance(uid, str) or not uid:
            problems.append("the kubelet lists a pod without a uid")
            continue
        try:
            pods[uid] = agent_pod_from_json(item)
        except (codec.DecodeError, InvalidInput) as error:
            problems.append(f"pod {uid} is left as it is: {error}")
            if uid in last.pods:
                pods[uid] = last.pods[uid]
                unclear.add(uid)
    return KnownPods(pods=pods, unclear=frozenset(unclear), problems=tuple(problems), at_ms=at_ms)
