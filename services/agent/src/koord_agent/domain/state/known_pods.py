"""The pods of a node as its kubelet lists them. The last list stays while the kubelet is silent.

    ledger (log)    what was placed here          starts and stops are published for these
    kubelet         what is here                  wins in every detail: containers, labels, phase

If an object cannot be parsed, its pod is frozen: it stays as it was, and nothing touches it.

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
    """The pods of the kubelet.

    Attributes:
        unclear: UIDs whose newest object could not be parsed. The last known pod stays and is not touched.
        problems: Why, one sentence each.
        at_ms: Time of the last list; None = no list so far.
        read: Digests of the objects of that list, with the pod of each.
    """

    pods: Mapping[str, AgentPod] = field(default_factory=dict[str, AgentPod])
    unclear: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    at_ms: int | None = None
    read: Mapping[bytes, AgentPod] = field(default_factory=dict[bytes, AgentPod], repr=False)

    def frozen(self, now_ms: int) -> frozenset[str]:
        """Return the UIDs of the pods that must not be touched at this moment."""
        if self.at_ms is None or abs(now_ms - self.at_ms) > STALE_MS:
            return frozenset(self.pods)
        return self.unclear


def known_after(last: KnownPods, items: Sequence[bytes], at_ms: int) -> KnownPods:
    """Return the pods after a list of the kubelet.

    If an object cannot be parsed, the pod stays as it was known before, frozen. An object without a UID is left out. An
    object that is unchanged since the last list is not parsed again.

    Args:
        last: What was known before.
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
    """Return the UID of an object whose other fields may be malformed; "" = it has none."""
    try:
        return codec.decode(item, _Object).metadata.uid
    except codec.DecodeError:
        return ""
