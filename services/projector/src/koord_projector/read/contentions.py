"""Contentions: facts of agents about disturbed pods, joined with their ends and counted by pairs of pods."""

from collections.abc import Iterable, Sequence

import msgspec
from koordcore.events.nodestate import InterferenceDetected, InterferenceEnded, Suspect


class Contention(msgspec.Struct, frozen=True, kw_only=True):
    """One contention: a pod that other pods of its node disturbed.

    Attributes:
        seq: Position of the fact that reported it.
        detected_at: RFC 3339 time at which the agent detected it.
        uid: Uid of the disturbed pod; `namespace`, `name` and `qos` are of this pod too.
        container: Name of the disturbed container; "" if the signal is measured for the whole pod.
        signal: Measured signal, such as psi-cpu.
        value: Measured value that crossed `threshold`, in the unit of the signal.
        suspects: Pods that may have caused it, most suspicious first.
        mitigation: Actions of the agent, one sentence each.
        lasted_seconds: Duration; null while it lasts.
        ended: Why it ended, one sentence; "" while it lasts.
    """

    seq: int
    detected_at: str
    node: str
    uid: str
    namespace: str
    name: str
    qos: str
    container: str
    signal: str
    value: float
    threshold: float
    suspects: list[Suspect]
    mitigation: list[str]
    lasted_seconds: float | None = None
    ended: str = ""


class DisturbingPair(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that was the main suspect of contentions, and the pod that it disturbed.

    Attributes:
        suspect: The most suspicious pod of these contentions.
        uid: Uid of the disturbed pod; `namespace` and `name` are of this pod too.
        times: Number of contentions.
        seconds: Sum of the durations of the contentions that have ended.
        lasting: Number of contentions that have not ended.
        signals: Signals by which they were detected, sorted.
    """

    suspect: Suspect
    uid: str
    namespace: str
    name: str
    times: int
    seconds: float
    lasting: int
    signals: list[str]


class Detection(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    detected_at: str
    node: str
    event: InterferenceDetected


def join_contentions(
    detections: Iterable[Detection], ends: Iterable[tuple[str, InterferenceEnded]]
) -> list[Contention]:
    """The contentions with their durations, in the order of `detections`. `ends`: (node, fact) each."""
    ended = {(node, event.contention): event for node, event in ends}
    return [_contention(each, ended.get((each.node, each.event.contention))) for each in detections]


def _contention(detection: Detection, end: InterferenceEnded | None) -> Contention:
    event = detection.event
    return Contention(
        seq=detection.seq,
        detected_at=detection.detected_at,
        node=detection.node,
        uid=event.pod_uid,
        namespace=event.namespace,
        name=event.name,
        qos=event.qos,
        container=event.container,
        signal=event.signal,
        value=event.value,
        threshold=event.threshold,
        suspects=event.suspects,
        mitigation=event.mitigation,
        lasted_seconds=None if end is None else end.lasted_seconds,
        ended="" if end is None else end.reason,
    )


def disturbing_pairs(contentions: Sequence[Contention]) -> list[DisturbingPair]:
    """Main suspects with the pods that they disturbed, the most frequent pair first.

    A contention counts for its most suspicious pod. Contentions without a suspect are left out.
    """
    groups: dict[tuple[str, str], list[Contention]] = {}
    for each in contentions:
        if each.suspects:
            groups.setdefault((each.suspects[0].uid, each.uid), []).append(each)
    pairs = [_pair(group) for group in groups.values()]
    return sorted(pairs, key=lambda pair: (-pair.times, -pair.seconds, pair.suspect.name, pair.name))


def _pair(group: Sequence[Contention]) -> DisturbingPair:
    first = group[0]
    return DisturbingPair(
        suspect=first.suspects[0],
        uid=first.uid,
        namespace=first.namespace,
        name=first.name,
        times=len(group),
        seconds=sum(each.lasted_seconds or 0.0 for each in group),
        lasting=sum(1 for each in group if each.lasted_seconds is None),
        signals=sorted({each.signal for each in group}),
    )
