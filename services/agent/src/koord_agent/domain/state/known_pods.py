"""Which pods are on the node, when a kubelet says so: its list, kept while it is silent, frozen where it is not clear.

    ledger (log)    what was placed here          starts and stops are said of these
    kubelet         what is here                  wins in every detail: containers, labels, phase

source    agent spec, 4.3
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.state.pods import AgentPod, agent_pod_from_json

STALE_MS = 60_000
"""Without a list for this long, nothing is changed any more about pods that only the kubelet knows."""


@dataclass(frozen=True, kw_only=True)
class KnownPods:
    """The kubelet's pods.

    unclear    uids whose newest object could not be read: the last one that could be stays, and they are not touched
    problems   why, one sentence each
    at_ms      time of the last list; None = none so far
    read       digests of the objects of that list, with what each was read as
    """

    pods: Mapping[str, AgentPod] = field(default_factory=dict[str, AgentPod])
    unclear: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    at_ms: int | None = None
    read: Mapping[bytes, AgentPod] = field(default_factory=dict[bytes, AgentPod], repr=False)

    def frozen(self, now_ms: int) -> frozenset[str]:
        """Uids of the pods that must not be touched at this moment."""
        if self.at_ms is None or abs(now_ms - self.at_ms) > STALE_MS:
            return frozenset(self.pods)
        return self.unclear


def known_after(last: KnownPods, items: Sequence[bytes], at_ms: int) -> KnownPods:
    """What is known after a list of the kubelet.

    An object that cannot be read keeps the pod as it was known before, frozen; one without a uid is left out. One that
    is as it was in the last list is not read again.
    items    the objects' JSON
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
    """The uid of an object whose other fields may be anything; "" = it has none."""
    try:
        return codec.decode(item, _Object).metadata.uid
    except codec.DecodeError:
        return ""
