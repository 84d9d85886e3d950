"""What users are told: conditions, events, and the status of gangs, quotas, recommendations and explanations."""

import json
from pathlib import Path
from typing import Any

import msgspec
from koordcore.events.cluster import ClusterTopologyComputed, TopologyDomain
from koordcore.events.envelope import AggregateRef, BasedOn, Origin
from koordcore.events.explanations import NodeFailure, PodUnschedulable
from koordcore.events.gang import GangPhaseChanged
from koordcore.events.nodepolicy import SLO_ADJUST, MassAbnormalityChanged
from koordcore.events.pod import PlacementExplanation
from koordcore.events.quota import QuotaProfileRendered, QuotaStatusComputed
from koordcore.events.recommendation import ContainerRecommendation, RecommendationComputed, RecommendedAmounts
from koordcore.events.schedule_explanation import DomainOutlook, ScheduleExplanationComputed, SchedulingOutlook
from koordcore.service.clock import SystemClock
from koordcore.values.timestamps import rfc3339
from support.kubernetes.gateway_world import World, gateway_world, install_crds, pod, words

Json = dict[str, Any]


def unschedulable(message: str) -> PodUnschedulable:
    explanation = PlacementExplanation(nodes_considered=1, nodes_feasible=0, policy_version="t", based_on=BasedOn())
    return PodUnschedulable(
        namespace="default",
        name="a",
        attempt=1,
        queued_at="2026-01-01T00:00:00Z",
        message=message,
        explanation=explanation,
    )


async def test_a_pod_that_fits_nowhere_says_so_in_its_condition_and_events(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(pod("a", cpu="100"))
        uid = await world.mirrored("a")
        message = "0/1 nodes are available: 1 Insufficient cpu."
        for attempt in (1, 2):
            now = rfc3339(SystemClock().now())
            origin = Origin(causation_id=f"t{attempt}", correlation_id=uid, actor="scheduler/t", occurred_at=now)
            await world.bus.explanations.publish(AggregateRef("pod", uid), unschedulable(message), origin)
            await world.until(lambda n=attempt: [item["count"] for item in words(world, "FailedScheduling")] == [n])

        found = world.server.object("pods", "default", "a")
        assert found is not None
        condition = next(item for item in found["status"]["conditions"] if item["type"] == "PodScheduled")
        assert (condition["status"], condition["reason"], condition["message"]) == ("False", "Unschedulable", message)
        assert len(words(world, "FailedScheduling")) == 1
        assert words(world, "FailedScheduling")[0]["type"] == "Warning"


async def test_gangs_quotas_and_recommendations_show_their_status(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        await install_crds(world.server)
        await world.begin()
        sigs, here = "scheduling.sigs.k8s.io/v1alpha1", {"namespace": "default"}
        await world.server.apply(
            {"apiVersion": sigs, "kind": "PodGroup", "metadata": {"name": "job", **here}, "spec": {"minMember": 2}}
        )
        await world.server.apply(
            {
                "apiVersion": sigs,
                "kind": "ElasticQuota",
                "metadata": {"name": "team", **here},
                "spec": {"max": {"cpu": 8}},
            }
        )
        await world.server.apply(
            {
                "apiVersion": "analysis.koordinator.sh/v1alpha1",
                "kind": "Recommendation",
                "metadata": {"name": "web", **here},
                "spec": {"target": {"type": "podSelector", "podSelector": {"matchLabels": {"app": "web"}}}},
            }
        )
        await world.append(
            AggregateRef("gang", "default=job"),
            GangPhaseChanged(namespace="default", name="job", phase="Scheduling", scheduled=1),
        )
        for cpu in (2500, 1000):
            used = {"cpu": cpu, "memory": 1 << 30} if cpu > 1000 else {"cpu": cpu}
            await world.append(
                AggregateRef("quota", "team"),
                QuotaStatusComputed(name="team", namespace="default", used=used, runtime={"cpu": 8000}),
            )
        amounts = RecommendedAmounts(460, 700 << 20)
        computed = ContainerRecommendation(
            name="app", target=amounts, lower_bound=amounts, upper_bound=amounts, uncapped_target=amounts
        )
        await world.append(
            AggregateRef("recommendation", "default=web"),
            RecommendationComputed(
                namespace="default", name="web", target="pods app=web", containers=[computed], cause="first"
            ),
        )

        def shown(plural: str, name: str) -> Json:
            return world.server.object(plural, "default", name) or {}

        await world.until(lambda: shown("podgroups", "job").get("status", {}).get("phase") == "Scheduling")
        await world.until(lambda: shown("elasticquotas", "team").get("status", {}).get("used") == {"cpu": "1"})
        annotations = shown("elasticquotas", "team")["metadata"]["annotations"]
        assert json.loads(annotations["quota.scheduling.koordinator.sh/runtime"]) == {"cpu": "8"}
        await world.until(lambda: shown("recommendations", "web").get("status"))
        status = shown("recommendations", "web")["status"]
        assert status["podStatus"]["containerStatuses"][0]["resources"]["cpu"] == "460m"
        await world.until(lambda: world.gateway.is_idle)


async def test_explanations_show_their_answer_until_their_time_is_over(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        await install_crds(world.server)
        await world.begin()
        scheduling = "scheduling.koordinator.sh/v1alpha1"
        asking = {
            "apiVersion": scheduling,
            "kind": "ScheduleExplanation",
            "metadata": {"name": "why", "namespace": "default"},
            "spec": {"questionObjectKey": "default/web"},
        }
        layers = [{"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": ""}]
        network = {
            "apiVersion": scheduling,
            "kind": "ClusterNetworkTopology",
            "metadata": {"name": "default"},
            "spec": {"networkTopologySpec": layers},
        }
        await world.server.apply(asking)
        await world.server.apply(network)

        def shown() -> Json:
            return world.server.object("scheduleexplanations", "default", "why") or {}

        failures = [NodeFailure(plugin="NodeResourcesFit", reason="Insufficient cpu", count=1, nodes=["a"])]
        refused = SchedulingOutlook(failed_message="0/1 nodes are available: 1 Insufficient cpu.", failures=failures)
        said = ScheduleExplanationComputed(
            namespace="default",
            name="why",
            uid=shown()["metadata"]["uid"],
            last_update_time="2026-01-01T00:00:00.000000Z",
            failed_message=refused.failed_message,
            domains=[DomainOutlook(scheduling=refused, preemption=SchedulingOutlook())],
        )
        ref = AggregateRef("scheduleexplanation", "default=why")
        await world.append(ref, said)
        domain = TopologyDomain(layer="ClusterTopologyLayer", child_layer="NodeTopologyLayer", nodes=2)
        await world.append(
            AggregateRef("clustertopology", "default"), ClusterTopologyComputed(name="default", domains=[domain])
        )
        await world.until(lambda: shown().get("status", {}).get("failedMessage") == refused.failed_message)
        [detail] = shown()["status"]["detailedExplanation"]
        assert detail["scheduleExplanation"]["nodeFailedDetails"][0]["failedNodes"] == ["a"]

        def detail_of_network() -> object:
            found = world.server.object("clusternetworktopologies", "", "default") or {}
            return found.get("status", {}).get("detailStatus")

        info = {"topologyLayer": "ClusterTopologyLayer", "topologyName": ""}
        await world.until(
            lambda: (
                detail_of_network() == [{"topologyInfo": info, "childTopologyLayer": "NodeTopologyLayer", "nodeNum": 2}]
            )
        )
        await world.append(ref, msgspec.structs.replace(said, uid="another", expired=True))
        await world.until(lambda: world.gateway.is_idle)
        assert shown()
        await world.append(ref, msgspec.structs.replace(said, expired=True))
        await world.until(lambda: not shown())


async def profile_mirrored(world: World) -> None:
    """A profile `pool` whose root quota is `root`, known to the manager."""
    profile = {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {"name": "pool", "namespace": "default"},
        "spec": {"quotaName": "root", "nodeSelector": {"matchLabels": {"pool": "a"}}},
    }
    await world.server.apply(profile)
    await world.until(lambda: mirrored(world, "elasticquotaprofiles", "pool"))


def mirrored(world: World, plural: str, name: str) -> object:
    """What the manager knows of an object of namespace default."""
    found = world.view.custom(plural, "default", name)
    return found.object if found is not None else None


async def test_the_root_quota_of_a_profile_is_kept_as_rendered(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        await install_crds(world.server)
        await world.begin()
        tree = "quota.scheduling.koordinator.sh/tree-id"
        await profile_mirrored(world)
        rendered = QuotaProfileRendered(
            quota_namespace="default", quota_name="root", labels={tree: "7"}, min={"cpu": "8"}, max={"cpu": "100"}
        )
        await world.append(AggregateRef("quotaprofile", "default=pool"), rendered)

        def quota() -> Json:
            return world.server.object("elasticquotas", "default", "root") or {}

        await world.until(lambda: quota().get("spec", {}).get("min") == {"cpu": "8"})
        assert quota()["metadata"]["labels"] == {tree: "7"}
        stored = world.server.object("elasticquotaprofiles", "default", "pool")
        assert stored is not None
        await world.until(
            lambda: (world.server.object("elasticquotaprofiles", "default", "pool") or {})["metadata"].get("labels")
        )
        await world.until(lambda: world.gateway.is_idle)
        await world.server.apply(
            {**quota(), "metadata": {"name": "root", "namespace": "default"}, "spec": {"min": {"cpu": 1}}}
        )
        await world.until(lambda: quota().get("spec", {}).get("min") == {"cpu": "8"})
        await world.server.delete("elasticquotas", "default", "root")
        await world.until(lambda: quota().get("spec", {}).get("max") == {"cpu": "100"})

        await world.server.delete("elasticquotaprofiles", "default", "pool")
        await world.until(lambda: not mirrored(world, "elasticquotaprofiles", "pool"))
        await world.server.delete("elasticquotas", "default", "root")
        await world.until(lambda: not mirrored(world, "elasticquotas", "root") and world.gateway.is_idle)
        assert not quota()


async def test_a_refused_root_quota_and_abnormal_nodes_are_told_as_events(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        await install_crds(world.server)
        world.server.faults.answer("POST", "/elasticquotas", 403)
        await world.begin()
        await profile_mirrored(world)
        rendered = QuotaProfileRendered(quota_namespace="default", quota_name="root", min={"cpu": "8"})
        await world.append(AggregateRef("quotaprofile", "default=pool"), rendered)
        await world.until(lambda: words(world, "CreateQuotaFailed"))
        abnormal = MassAbnormalityChanged(active=True, abnormal=9, cap=3, nodes=20, examples=["node-1"])
        await world.append(SLO_ADJUST, abnormal)
        await world.until(lambda: words(world, "MassAbnormalNodes"))

        assert words(world, "CreateQuotaFailed")[0]["involvedObject"]["kind"] == "ElasticQuotaProfile"
        assert "9 of 20 nodes" in words(world, "MassAbnormalNodes")[0]["message"]
