"""Facts for the synthetic cluster: contentions, an eviction, a gang, configuration, a recommendation."""

import json
from collections.abc import Sequence
from datetime import datetime

from koordcore.events.envelope import Event, name_token, namespaced_token
from koordcore.events.nodepolicy import ConfigWarned
from koordcore.events.nodestate import (
    BeCpuSuppressed,
    EvictedPod,
    InterferenceDetected,
    InterferenceEnded,
    PodsEvictedByAgent,
    Suspect,
)
from koordcore.events.objects import ConfigAccepted, ConfigRejected, PodSpecAdded
from koordcore.events.recommendation import (
    ContainerRecommendation,
    RecommendationComputed,
    RecommendationCondition,
    RecommendedAmounts,
)
from koordcore.protocol import keys
from koordcore.protocol.objects import (
    ConfigMap,
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from koordcore.values.timestamps import rfc3339

GANG = ("training", "resnet")
GANG_MEMBERS = 4
CONFIG = ("koordinator-system", "slo-controller-config")
GIB = 1 << 30

Written = tuple[str, str, Event, str]
"""(aggregate kind, aggregate id, event, actor)."""


def disturbance(node: str, victim: Suspect, suspect: Suspect, number: int, *, lasts: bool) -> Sequence[Written]:
    """A contention between two pods of a node; it ends unless it lasts."""
    detected = InterferenceDetected(
        contention=f"c{number}",
        pod_uid=victim.uid,
        namespace=victim.namespace,
        name=victim.name,
        qos=victim.qos,
        signal="psi-cpu",
        value=23.4 + number,
        threshold=20.0,
        suspects=[suspect],
        mitigation=["the quota of best-effort pods was lowered to 2 cores"],
    )
    written: list[Written] = [("nodestate", name_token(node), detected, f"agent/{node}")]
    if not lasts:
        ended = InterferenceEnded(
            contention=f"c{number}",
            pod_uid=victim.uid,
            signal="psi-cpu",
            lasted_seconds=42.0,
            reason="psi-cpu stayed below 20 for 30 s",
        )
        written.append(("nodestate", name_token(node), ended, f"agent/{node}"))
    return written


def suppression(node: str, budget: int) -> Written:
    """The agent of a node limits its best-effort pods to a budget in milli-cores."""
    suppressed = BeCpuSuppressed(
        old_quota_us=-1,
        new_quota_us=budget * 100,
        terms={"capacity": 16_000, "threshold_percent": 65, "pod_non_be_used": 6_500, "budget": budget},
        reason="pods of higher QoS use 6.5 of 16 cores",
    )
    return "nodestate", name_token(node), suppressed, f"agent/{node}"


def eviction(node: str, pod: Suspect) -> Written:
    """An eviction by the agent of a node."""
    evicted = PodsEvictedByAgent(
        feature="BEMemoryEvict",
        pods=[EvictedPod(uid=pod.uid, namespace=pod.namespace, name=pod.name, releases={"memory": 2 * GIB})],
        reason="memory usage 83 % is above 80 %",
    )
    return "nodestate", name_token(node), evicted, f"agent/{node}"


def gang_members() -> Sequence[Written]:
    """Pods of a gang that no node fits."""
    namespace, name = GANG
    written: list[Written] = []
    for number in range(GANG_MEMBERS):
        uid = f"6a000000-0000-4000-8000-{number:012x}"
        pod = Pod(
            metadata=ObjectMeta(
                name=f"{name}-{number}",
                namespace=namespace,
                uid=uid,
                labels={keys.POD_GROUP: name},
                annotations={keys.GANG_MIN_AVAILABLE: str(GANG_MEMBERS)},
            ),
            spec=PodSpec(
                containers=[
                    Container(name="main", resources=ResourceRequirements(requests={"cpu": 500, "memory": "900Gi"}))
                ]
            ),
        )
        written.append(("podspec", uid, PodSpecAdded(object=pod), "manager/0"))
    return written


def configuration() -> Sequence[Written]:
    """A ConfigMap that is accepted, changed with a warning, and changed to something invalid."""
    token = namespaced_token(*CONFIG)
    namespace, name = CONFIG

    def accepted(threshold: int) -> ConfigAccepted:
        data = {"colocation-config": json.dumps({"enable": True, "cpuReclaimThresholdPercent": threshold})}
        return ConfigAccepted(object=ConfigMap(metadata=ObjectMeta(namespace=namespace, name=name), data=data))

    rule = "colocation-config.cpuReclaimThresholdPercent: must be between 0 and 100, but was 160"
    rejected = ConfigRejected(
        namespace=namespace,
        name=name,
        data={"colocation-config": '{"enable": true, "cpuReclaimThresholdPercent": 160}'},
        reasons={"colocation-config": rule},
    )
    return [
        ("config", token, accepted(60), "manager/0"),
        ("config", token, accepted(65), "manager/0"),
        ("config", token, ConfigWarned(namespace=namespace, name=name, warnings={"colocation-config": "unusual"}), "m"),
        ("config", token, rejected, "manager/1"),
    ]


def recommendation(at: datetime) -> Written:
    """A recommendation for a Deployment with one container."""
    container = ContainerRecommendation(
        name="main",
        target=RecommendedAmounts(1250, 3 * GIB),
        lower_bound=RecommendedAmounts(800, 2 * GIB),
        upper_bound=RecommendedAmounts(2400, 5 * GIB),
        uncapped_target=RecommendedAmounts(1250, 3 * GIB),
        samples=1440,
        first_sample_at=rfc3339(at),
        last_sample_at=rfc3339(at),
        confidence_days=1.0,
    )
    computed = RecommendationComputed(
        namespace="checkout",
        name="api",
        target="Deployment/checkout-api",
        containers=[container],
        conditions=[RecommendationCondition(type="RecommendationProvided", status="True")],
        pods=7,
        cause="first",
    )
    return "recommendation", namespaced_token("checkout", "api"), computed, "manager/0"
