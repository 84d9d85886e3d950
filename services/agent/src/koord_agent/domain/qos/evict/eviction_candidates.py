"""Candidates of an eviction feature, and their order.

Source: agent spec, 12.1 (priority order, annotations).
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cmp_to_key

from koordcore.protocol import keys
from koordcore.protocol.annotations.pods import is_eviction_enabled, parse_eviction_priority
from koordcore.protocol.lenient_json import parse_json
from koordcore.protocol.qos import QosClass
from koordcore.values.integers import parse_literal
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.state.pods import AgentPod


def is_allowed(pod: AgentPod, feature: str) -> bool:
    """Return whether the eviction policy in a pod's annotation allows an eviction feature.

    Without a policy every feature is allowed; with an invalid policy none is.
    """
    text = pod.annotations.get(keys.EVICTION_POLICY)
    if text is None:
        return True
    try:
        features = parse_json(text)
    except InvalidInput:
        return False
    return isinstance(features, list) and feature in features


def by_priority(
    pods: Iterable[AgentPod], *, feature: str, priority_threshold: int, amount: Mapping[str, int], known: Iterable[str]
) -> tuple[AgentPod, ...]:
    """Return the pods that a feature may evict, of any QoS class, in the order of eviction.

    A candidate is Pending or Running, has a usage sample and a priority of at most the threshold, and its labels and
    policy allow the eviction. Candidates are sorted by eviction priority, priority value and label priority
    ascending, then by amount descending, then by name.

    Args:
        pods: The pods of the node.
        feature: Name of the eviction feature.
        priority_threshold: Pods above this priority value are not candidates.
        amount: UID -> amount (usage or request) by which the feature orders pods.
        known: UIDs that have a last usage sample.
    """
    seen = set(known)
    able = [
        pod
        for pod in pods
        if pod.is_active
        and pod.uid in seen
        and pod.priority_value <= priority_threshold
        and is_eviction_enabled(pod.labels)
        and is_allowed(pod, feature)
    ]
    return tuple(
        sorted(
            able,
            key=lambda pod: (
                _eviction_priority(pod),
                pod.priority_value,
                _label_priority(pod),
                -amount.get(pod.uid, 0),
                pod.namespace,
                pod.name,
            ),
        )
    )


def best_effort_by_priority(
    pods: Iterable[AgentPod], *, feature: str, then: Callable[[AgentPod, AgentPod], int]
) -> tuple[AgentPod, ...]:
    """Return the pods that a feature for best-effort pods may evict, in the order of eviction.

    Candidates are pods with label BE whose policy allows the feature, in any phase. The lowest spec.priority comes
    first.

    Args:
        pods: The pods of the node.
        feature: Name of the eviction feature.
        then: Compares two pods if one has no priority or both are equal; negative if the first is evicted first.
    """

    def compare(one: AgentPod, other: AgentPod) -> int:
        mine, theirs = one.spec_priority, other.spec_priority
        if mine is not None and theirs is not None and mine != theirs:
            return mine - theirs
        return then(one, other)

    able = [pod for pod in pods if pod.qos_label == QosClass.BE and is_allowed(pod, feature)]
    return tuple(sorted(sorted(able, key=lambda pod: (pod.namespace, pod.name)), key=cmp_to_key(compare)))


def _eviction_priority(pod: AgentPod) -> int:
    try:
        return parse_eviction_priority(pod.annotations)
    except InvalidInput:
        return 0


def _label_priority(pod: AgentPod) -> int:
    text = pod.labels.get(keys.SUB_PRIORITY)
    if not text:
        return pod.priority_value
    try:
        return parse_literal(text, 32)
    except InvalidInput:
        return pod.priority_value
