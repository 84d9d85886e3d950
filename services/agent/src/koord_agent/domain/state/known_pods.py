"""The pods of a node in the list of its kubelet. While the kubelet does not answer, the last list stays.

    ledger (log)    pods placed on the node       their starts and stops are published
    kubelet         pods present on the node      takes precedence for containers, labels and phase

If an object cannot be parsed, its pod is *frozen*: its files stay unchanged, and it is not evicted.

Source: agent spec, 4.3.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.state.pods import AgentPod, agent_pod_from_json

STALE_MS = 60_000
"""Age of the last list above which pods that only the kubelet knows are frozen."""


@dataclass(frozen=True, kw_only=True)
class KnownPods:
    """The pods in the last list of the kubelet.

    Attributes:
        pods: UID -> pod.
        unclear: UIDs whose newest object is invalid. The last known version stays, and the pod is not changed.
        problems: Reasons, one sentence each.
        at_ms: Time of the last list in milliseconds; None: no list so far.
        read: Digest of an object in that list -> its pod.
    """

    pods: Mapping[str, AgentPod] = field(default_factory=dict[str, AgentPod])
    unclear: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    at_ms: int | None = None
    read: Mapping[bytes, AgentPod] = field(default_factory=dict[bytes, AgentPod], repr=False)

    def frozen(self, now_ms: int) -> frozenset[str]:
        """Return the UIDs of the pods that must not be changed now.

        They are the pods whose newest object is invalid. If there is no list or it is more than a minute old, they are
        all pods.
        """
        if self.at_ms is None or abs(now_ms - self.at_ms) > STALE_MS:
            return frozenset(self.pods)
        return self.unclear


def known_after(last: KnownPods, items: Sequence[bytes], at_ms: int) -> KnownPods:
    """Return the pods after a new list of the kubelet.

    If an object is invalid, the pod keeps its last known version and must not be changed; a pod without a known version
    is left out. An object without UID is left out. An object that did not change is not parsed again.

    Args:
        last: Pods of the previous list.
        items: JSON of the objects.
        at_ms: Time in milliseconds.
    """
    pods: dict[str, AgentPod] = {}
    read: dict[bytes, AgentPod] = {}
    unclear: set[str] = set()
    problems: list[str] = []
    for item in items:
        digest = hashlib.blake2b(item, digest_size=16).digest()
        pod = last.read.get(digest)
        if pod is None:
            uid = _uid(item)
            if not uid:
                problems.append("the kubelet lists a pod without a uid")
                continue
            try:
                pod = agent_pod_from_json(codec.decode(item, dict[str, object]))
            except (codec.DecodeError, InvalidInput) as error:
                problems.append(f"pod {uid} is left as it is: {error}")
                if uid in last.pods:
                    pods[uid] = last.pods[uid]
                    unclear.add(uid)
                continue
        pods[pod.uid] = read[digest] = pod
    # the same object where nothing changed: whoever follows it need not look
    kept = last.pods if pods == last.pods else pods
    return KnownPods(pods=kept, unclear=frozenset(unclear), problems=tuple(problems), at_ms=at_ms, read=read)


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def _uid(item: bytes) -> str:
    """Return the UID of an object whose other fields may be invalid; "" if it has none."""
    try:
        return codec.decode(item, _Object).metadata.uid
    except codec.DecodeError:
        return ""
