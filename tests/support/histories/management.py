"""Steps of what the manager computes: node policies, recommendations and profiles of quotas."""

from koordcore.events.envelope import BasedOn, name_token
from koordcore.events.nodepolicy import (
    SLO_ADJUST,
    MassAbnormalityChanged,
    MidTerms,
    NodeDevicesComputed,
    NodeHealthAssessed,
    NodeMetricPolicyRendered,
    NodeOvercommitComputed,
    NodeRatiosComputed,
    NodeSloRendered,
    OvercommitTerms,
    ZoneOvercommit,
)
from koordcore.events.quota import QuotaProfileDropped, QuotaProfileRendered
from koordcore.events.recommendation import (
    ContainerRecommendation,
    RecommendationComputed,
    RecommendationDropped,
    RecommendedAmounts,
)
from support.histories.actions import Action
from support.histories.objects import NODES
from support.histories.recording import Recorder


def step_management(log: Recorder, action: Action) -> None:
    """Write the facts of a step of the manager."""
    what, number, variation = action
    token = name_token(NODES[number % len(NODES)])
    match what:
        case "overcommit":
            terms = OvercommitTerms(
                capacity=8000,
                margin=3200,
                system_used=100,
                reserved=0,
                high_priority_used=1000,
                high_priority_request=2000,
                result=3700 - variation,
                policy="usage",
            )
            computed = NodeOvercommitComputed(
                batch_cpu_milli=3700 - variation,
                batch_memory_bytes=1 << 30,
                reason="changed",
                terms={"cpu": terms},
                mid_cpu_milli=500,
                mid_memory_bytes=1 << 29,
                mid_terms={"cpu": MidTerms(mode="dynamic", capacity=8000, cap=8000, result=500)},
                origin={"kubernetes.io/batch-cpu": 3700},
                third_party={"kubernetes.io/batch-cpu": variation},
                zones={"node-0": ZoneOvercommit(1850, 1 << 29)},
                normalization="1.10",
                metric_updated_at="2026-01-01T00:00:00.000000Z",
                config_version=1,
                based_on=BasedOn(len(log.events), 1),
            )
            log.write("nodepolicy", token, computed)
        case "withdraw":
            gone = NodeOvercommitComputed(reason="degraded: metric expired", based_on=BasedOn(len(log.events), 1))
            log.write("nodepolicy", token, gone)
        case "slo":
            spec = {"resourceUsedThresholdWithBE": {"enable": variation % 2 == 0, "cpuSuppressThresholdPercent": 65}}
            log.write("nodepolicy", token, NodeSloRendered(spec=spec, config_version=variation))
            log.write("nodepolicy", token, NodeMetricPolicyRendered(spec={"reportIntervalSeconds": 60 + variation}))
            log.write("nodepolicy", token, NodeRatiosComputed(cpu_normalization="1.10", amplification='{"cpu":1.10}'))
            gpus = NodeDevicesComputed(resources={"koordinator.sh/gpu": 100 * variation}, device_version=1)
            log.write("nodepolicy", token, gpus)
            health = NodeHealthAssessed(
                level="Warning",
                abnormality=0.6,
                weight=40,
                reported_weight=100 if variation % 2 else 40,
                offsets={"cpu": -5, "memory": 0},
                reasons=["cpuUtil"],
                cause="level",
            )
            log.write("nodepolicy", token, health)
            log.write(*SLO_ADJUST, MassAbnormalityChanged(active=variation % 2 == 1, abnormal=1, cap=1, nodes=3))
            quota = QuotaProfileRendered(quota_namespace="default", quota_name="root", min={"cpu": str(variation)})
            log.write("quotaprofile", "default=pool", quota)
        case "recommend":
            amounts = RecommendedAmounts(100 + variation, 1 << 20)
            container = ContainerRecommendation(
                name="c", target=amounts, lower_bound=amounts, upper_bound=amounts, uncapped_target=amounts
            )
            computed_status = RecommendationComputed(
                namespace="default", name="web", target="Deployment/web", containers=[container], cause="amounts"
            )
            log.write("recommendation", "default=web", computed_status)
        case "no-recommendation":
            log.write("recommendation", "default=web", RecommendationDropped(namespace="default", name="web"))
        case "no-quota-profile":
            log.write("quotaprofile", "default=pool", QuotaProfileDropped())
        case _:
            pass  # a step of another module, or not possible in the present state: no event
