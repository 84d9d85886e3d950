"""The gateway against the emulated API server over HTTP: what users see, and everything that goes wrong on the way."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from koord_manager.shell.gateway.api import LeaseHttp, connect_api
from koord_manager.shell.gateway.outbox import Writes
from koordcore.embedded.tls import ensure_tls_files
from koordcore.events import CATALOGUE
from koordcore.events.adjustment import SLO_ADJUST, MassAbnormalityChanged
from koordcore.events.cluster_topology import ClusterTopologyComputed, TopologyDomain
from koordcore.events.custom import CustomObjectObserved, custom_ref
from koordcore.events.diagnosis import NodeFailure
from koordcore.events.envelope import AggregateRef, BasedOn, Origin
from koordcore.events.explanation import PlacementExplanation
from koordcore.events.gang import GangPhaseChanged
from koordcore.events.gateway import PodEvictionRequested
from koordcore.events.nodepolicy import NodeOvercommitComputed, NodeSloRendered
from koordcore.events.quota import QuotaStatusComputed
from koordcore.events.quota_profile import QuotaProfileRendered
from koordcore.events.recommendation import ContainerRecommendation, RecommendationComputed, RecommendedAmounts
from koordcore.events.schedule_explanation import DomainOutlook, ScheduleExplanationComputed, SchedulingOutlook
from koordcore.events.verdict import PodUnschedulable
from koordcore.ports.leadership import Term
from koordcore.protocol.crd.catalogue import definition_texts
from koordcore.service.clock import SystemClock
from koordcore.service.leadership import LeaseLeadership, LeaseTimes
from koordcore.state.aggregates import ConfigState, CustomObjectState, EvictionState, NodeSpecState, PodSpecState
from koordcore.values.timestamps import rfc3339
from kubernetes.apiserver import ApiServer, running_api_server
from kubernetes.authorization import User
from kubernetes.faults import Fault
from kubernetes.gateway_world import Interrupted, World, gateway_settings, gateway_world, node, pod
from yaml import safe_load

Json = dict[str, Any]


async def facts_of(world: World, uid: str) -> list[str]:
    return [item.type for item in await world.bus.events.read_aggregate(AggregateRef("podspec", uid))]


async def install_crds(server: ApiServer) -> None:
    for text in definition_texts().values():
        await server.apply(safe_load(text))


def words(world: World, reason: str) -> list[Json]:
    return [event for event in world.server.objects("events", "") if event["reason"] == reason]


def config_map(**data: str) -> Json:
    meta = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def budget(allowed: int) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    }


# -- what is mirrored and bound ---------------------------------------------------------------------------------------


async def test_objects_are_mirrored_and_a_placed_pod_is_bound_with_its_annotations(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        status = '{"cpuset":"0-1"}'

        await world.place(uid, "node-1", {"scheduling.koordinator.sh/resource-status": status})
        await world.until(lambda: world.node_of("a") == "node-1")

        bound = world.server.object("pods", "default", "a")
        assert bound is not None
        assert bound["metadata"]["annotations"]["scheduling.koordinator.sh/resource-status"] == status
        await world.until(lambda: (spec := world.spec(uid)) is not None and spec.binding is not None)
        await world.until(lambda: words(world, "Scheduled"))
        spec = world.spec(uid)
        assert spec is not None
        assert spec.binding is not None
        assert spec.binding.failure == ""
        assert spec.object.metadata.resource_version == ""


async def test_what_nobody_reads_makes_no_fact(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        await world.server.patch_status("pods", "default", "a", {"hostIP": "10.0.0.1"})
        await world.server.apply(pod("b"))
        await world.mirrored("b")

        assert await facts_of(world, uid) == ["PodSpecAdded"]


async def test_managed_fields_and_the_copy_of_the_manifest_never_enter_the_log(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        secret = pod("a")
        secret["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "S3CRET"}
        await world.server.apply(secret)
        uid = await world.mirrored("a")

        stored = await world.bus.events.read_aggregate(AggregateRef("podspec", uid))
        assert b"S3CRET" not in stored[0].body
        assert b"managedFields" not in stored[0].body


async def test_a_node_that_comes_back_under_its_name_was_gone_in_between(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        await world.until(lambda: world.view.node("node-1"))
        await world.stop()
        await world.server.delete("nodes", "", "node-1")
        await world.server.apply(node("node-1", cpu=4))
        await world.begin()
        await world.until(lambda: (found := world.view.node("node-1")) and found.status.capacity["cpu"] == "4")

        facts = await world.bus.events.read_aggregate(AggregateRef("nodespec", "node-1"))
        assert [item.type for item in facts] == ["NodeSpecAdded", "NodeSpecDeleted", "NodeSpecAdded"]


async def test_custom_resources_are_mirrored_once_their_definitions_are_installed(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        await install_crds(world.server)
        await world.begin()
        quota = {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": "team", "namespace": "default"},
            "spec": {"min": {"cpu": 4}, "max": {"cpu": 8}},
        }
        await world.server.apply(quota)
        ref = custom_ref("elasticquotas", "default", "team")
        await world.until(lambda: ref.id in world.view.state.of_kind(CustomObjectState))
        await world.server.delete("elasticquotas", "default", "team")
        await world.until(lambda: world.view.state.of_kind(CustomObjectState)[ref.id].object is None)


async def test_a_bad_section_of_the_configuration_keeps_its_last_good_text_and_is_told_to_the_user(
    tmp_path: Path,
) -> None:
    async with gateway_world(tmp_path) as world:
        good = config_map(**{"colocation-config": '{"enable": true}', "cpu-burst-config": "{}"})
        await world.server.apply(good)
        token = "koordinator-system=slo-controller-config"
        configs = lambda: world.view.state.of_kind(ConfigState)  # noqa: E731
        await world.until(lambda: token in configs())
        bad = config_map(
            **{"colocation-config": '{"enable": ', "cpu-burst-config": '{"clusterStrategy": {"policy": "auto"}}'}
        )
        await world.server.apply(bad)
        await world.until(lambda: configs()[token].rejected)

        state = configs()[token]
        assert state.object is not None
        assert state.object.data["colocation-config"] == '{"enable": true}'
        assert "auto" in state.object.data["cpu-burst-config"]
        assert list(state.rejected) == ["colocation-config"]
        await world.until(lambda: words(world, "ColocationCfgUnmarshalFailed"))

        await world.server.apply(good)
        await world.until(lambda: not configs()[token].rejected)


# -- watches and lists that break -------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_status", [True, False], ids=["http-410", "error-event-410"])
async def test_an_expired_watch_is_relisted_and_deletions_that_nobody_saw_are_found(
    tmp_path: Path, with_status: bool
) -> None:
    async with gateway_world(tmp_path) as world:
        world.server.expire_with_status = with_status
        for name in ("stays", "goes"):
            await world.server.apply(pod(name))
        gone, kept = await world.mirrored("goes"), await world.mirrored("stays")
        fault = world.server.faults.add(Fault("GET", "/api/v1/pods", 503, times=3))
        await world.drop_watches("pods")
        await world.until(lambda: fault.times < 3)
        await world.server.delete("pods", "default", "goes")
        await world.server.apply(pod("new"))
        world.server.store.compact()

        await world.mirrored("new")
        await world.until(lambda: world.spec(gone) is None)
        assert world.spec(kept) is not None
        assert await facts_of(world, gone) == ["PodSpecAdded", "PodSpecDeleted"]


async def test_a_dropped_watch_goes_on_where_it_was(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(pod("a"))
        await world.mirrored("a")
        lists = world.server.requests.count(("GET", "/api/v1/pods"))
        for name in ("b", "c", "d"):
            await world.drop_watches("pods")
            await world.server.apply(pod(name))
            await world.mirrored(name)

        assert world.server.requests.count(("GET", "/api/v1/pods")) == lists
        uid = world.uid("a")
        assert await facts_of(world, uid) == ["PodSpecAdded"]


async def test_bookmarks_move_a_quiet_watch_past_the_history_that_is_forgotten(tmp_path: Path) -> None:
    server = ApiServer(bookmark_seconds=0.05)
    async with gateway_world(tmp_path, server=server) as world:
        await world.server.apply(node("quiet"))
        await world.until(lambda: world.view.node("quiet"))
        for number in range(5):
            await world.server.apply(pod(f"busy-{number}"))
        last = await world.mirrored("busy-4")
        before = server.requests.count(("GET", "/api/v1/nodes"))
        await asyncio.sleep(0.3)  # bookmarks pass
        server.store.compact()
        await world.drop_watches("nodes")
        await server.apply(node("another"))
        await world.until(lambda: world.view.node("another"))

        assert world.spec(last) is not None
        assert server.requests.count(("GET", "/api/v1/nodes")) == before


async def test_a_list_whose_pages_expire_begins_anew(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        for number in range(1200):
            await world.server.apply(pod(f"p-{number}"))
        asked = 0

        async def expire_pages() -> None:
            nonlocal asked
            while asked < 2:
                if ("GET", "/api/v1/pods") in world.server.requests:
                    world.server.store.compact()
                    asked += 1
                    world.server.requests.clear()
                await asyncio.sleep(0)

        expiring = asyncio.create_task(expire_pages())
        await world.begin()
        await world.until(lambda: len(world.view.state.of_kind(PodSpecState)) == 1200, seconds=40)
        expiring.cancel()


async def test_a_slow_server_and_a_silent_watch_are_survived(tmp_path: Path) -> None:
    settings = gateway_settings(idle_seconds=0.3)
    async with gateway_world(tmp_path, server=ApiServer(bookmark_seconds=60), settings=settings) as world:
        world.server.faults.add(Fault("GET", "/api/v1/nodes", seconds=1.0, watch=False))
        await world.server.apply(node("node-1"))
        await world.until(lambda: world.view.node("node-1"))
        watches = len(world.server.requests)
        await world.until(lambda: len(world.server.requests) > watches + 20)  # each silent watch is taken up again
        await world.server.apply(pod("a"))
        await world.mirrored("a")


async def test_an_overloaded_server_is_asked_again_after_what_it_asks_for(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        world.server.faults.answer("GET", "/api/v1/nodes", 429, retry_after=1)
        await world.server.apply(node("node-1"))
        began = asyncio.get_running_loop().time()
        await world.begin()
        await world.until(lambda: world.view.node("node-1"))

        assert asyncio.get_running_loop().time() - began >= 1.0


async def test_an_object_that_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        await world.server.apply(pod("good"))
        broken = pod("broken")
        await world.server.apply(broken)
        stored = world.server.object("pods", "default", "broken")
        assert stored is not None
        stored["spec"]["priority"] = "high"
        nulls = world.server.object("pods", "default", "good")
        assert nulls is not None
        nulls["metadata"]["labels"] = None
        nulls["spec"]["tolerations"] = None
        await world.begin()
        await world.mirrored("good")

        assert world.spec(world.uid("broken")) is None


async def test_an_object_that_the_log_holds_in_a_bad_shape_holds_up_no_other_and_is_mended_when_it_is_seen(
    tmp_path: Path,
) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        await install_crds(world.server)
        await world.begin()
        ref = custom_ref("elasticquotas", "default", "bad")
        await world.append(ref, CustomObjectObserved(object={"metadata": "x", "spec": 1}))
        for name in ("bad", "good"):  # the status of the first cannot be worked out: its object has no name
            status = QuotaStatusComputed(name=name, namespace="default", used={"cpu": 1000}, runtime={})
            await world.append(AggregateRef("quota", name), status)
        for name in ("good", "bad"):
            await world.server.apply(
                {
                    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
                    "kind": "ElasticQuota",
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {"max": {"cpu": 8}},
                }
            )

            def used(name: str = name) -> object:
                return (world.server.object("elasticquotas", "default", name) or {}).get("status", {}).get("used")

            await world.until(lambda used=used: used() == {"cpu": "1"})
        await world.until(lambda: world.gateway.is_idle)


# -- bindings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [429, 500, 503, 504])
async def test_a_binding_that_the_server_could_not_take_is_repeated(tmp_path: Path, code: int) -> None:
    async with gateway_world(tmp_path) as world:
        world.server.faults.answer("POST", "/binding", code, times=2)
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        await world.place(uid, "node-1")
        await world.until(lambda: world.node_of("a") == "node-1")
        await world.until(lambda: (spec := world.spec(uid)) is not None and spec.binding is not None)

        assert (await facts_of(world, uid)).count("PodBound") == 1


async def test_a_binding_whose_answer_was_lost_is_found_to_be_done(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        world.server.faults.add(Fault("POST", "/binding", lose_answer=True))
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        await world.place(uid, "node-1")
        await world.until(lambda: (spec := world.spec(uid)) is not None and spec.binding is not None)

        spec = world.spec(uid)
        assert spec is not None
        assert spec.binding is not None
        assert spec.binding.failure == ""
        assert world.node_of("a") == "node-1"


async def test_a_pod_that_somebody_else_bound_is_released(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        world.server.faults.add(Fault("POST", "/binding", 503, times=1))
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"name": "node-2"}}
        await world.place(uid, "node-1")
        await world.server.verbs.bind(("default", "a"), binding, "another-scheduler", dry_run=False)
        await world.until(lambda: (spec := world.spec(uid)) is not None and spec.binding is not None)

        spec = world.spec(uid)
        assert spec is not None
        assert spec.binding is not None
        assert spec.binding.failure == "AssignedElsewhere"
        assert world.node_of("a") == "node-2"


async def test_a_pod_that_is_refused_or_leaving_gives_its_place_back(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("refused"))
        await world.server.apply({**pod("leaving"), "metadata": {"name": "leaving", "finalizers": ["a/b"]}})
        refused, leaving = await world.mirrored("refused"), await world.mirrored("leaving")
        world.server.faults.answer("POST", "pods/refused/binding", 403)
        await world.server.delete("pods", "default", "leaving")
        await world.place(refused, "node-1")
        await world.place(leaving, "node-1")

        def failure(uid: str) -> str:
            spec = world.spec(uid)
            return spec.binding.failure if spec is not None and spec.binding is not None else ""

        await world.until(lambda: failure(refused) and failure(leaving))
        assert (failure(refused), failure(leaving)) == ("Forbidden", "Terminating")
        await world.until(lambda: words(world, "FailedScheduling"))


async def test_a_recreated_pod_is_never_bound_to_the_place_of_its_predecessor(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        first = await world.mirrored("a")
        fault = world.server.faults.add(Fault("POST", "/binding", 503, times=1))
        watch = world.server.faults.add(Fault("GET", "/api/v1/pods", 503, times=2, watch=True))
        await world.drop_watches("pods")
        await world.until(lambda: watch.times < 2)
        await world.place(first, "node-1")
        await world.until(lambda: fault.times == 0)
        await world.server.delete("pods", "default", "a")
        await world.server.apply(pod("a"))
        second = await world.mirrored("a")
        await world.until(lambda: world.spec(first) is None)
        await asyncio.sleep(0.5)

        assert second != first
        assert world.node_of("a") == ""


@pytest.mark.parametrize("moment", ["before the request", "after the request"])
async def test_a_placed_pod_is_bound_by_the_next_leader_wherever_the_first_was_killed(
    tmp_path: Path, moment: str
) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        lost = moment == "after the request"
        fault = world.server.faults.add(Fault("POST", "/binding", 0 if lost else 503, times=1, lose_answer=lost))
        await world.place(uid, "node-1")
        await world.until(lambda: fault.times == 0)
        await world.stop()
        await world.begin()
        await world.until(lambda: (spec := world.spec(uid)) is not None and spec.binding is not None)

        assert world.node_of("a") == "node-1"
        assert (await facts_of(world, uid)).count("PodBound") == 1


# -- conditions, events, evictions ------------------------------------------------------------------------------------


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
            await world.bus.verdicts.publish(AggregateRef("pod", uid), unschedulable(message), origin)
            await world.until(lambda n=attempt: [item["count"] for item in words(world, "FailedScheduling")] == [n])

        found = world.server.object("pods", "default", "a")
        assert found is not None
        condition = next(item for item in found["status"]["conditions"] if item["type"] == "PodScheduled")
        assert (condition["status"], condition["reason"], condition["message"]) == ("False", "Unschedulable", message)
        assert len(words(world, "FailedScheduling")) == 1
        assert words(world, "FailedScheduling")[0]["type"] == "Warning"


async def run_on(world: World, name: str) -> str:
    await world.server.apply({**pod(name), "metadata": {"name": name, "labels": {"app": "web"}}})
    uid = await world.mirrored(name)
    await world.place(uid, "node-1")
    await world.until(lambda: world.node_of(name) == "node-1")
    await world.server.patch_status("pods", "default", name, {"phase": "Running"})
    return uid


async def test_an_eviction_waits_for_the_disruption_budget(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        uid = await run_on(world, "a")
        await world.server.apply(budget(0))
        wanted = PodEvictionRequested(
            namespace="default", name="a", node="node-1", initiator="descheduler", reason="Evicted"
        )
        await world.append(AggregateRef("eviction", uid), wanted)
        asked = lambda: world.server.requests.count(("POST", "/api/v1/namespaces/default/pods/a/eviction"))  # noqa: E731
        await world.until(lambda: asked() >= 2)
        assert uid in world.view.state.of_kind(EvictionState)

        await world.server.patch_status("poddisruptionbudgets", "default", "keep", {"disruptionsAllowed": 1})
        await world.until(lambda: uid not in world.view.state.of_kind(EvictionState))

        found = world.server.object("pods", "default", "a")
        assert found is not None
        assert found["metadata"]["deletionTimestamp"]
        await world.until(lambda: words(world, "Evicted"))


async def test_a_preempted_pod_is_deleted_with_its_condition_and_event(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        uid = await run_on(world, "a")
        await world.server.apply(budget(0))
        wanted = PodEvictionRequested(
            namespace="default",
            name="a",
            node="node-1",
            initiator="scheduler",
            method="delete",
            reason="Preempted",
            message="Preempted by pod 1234 on node node-1",
        )
        await world.append(AggregateRef("eviction", uid), wanted)
        await world.until(lambda: uid not in world.view.state.of_kind(EvictionState))

        found = world.server.object("pods", "default", "a")
        assert found is not None
        assert found["metadata"]["deletionTimestamp"]
        reasons = {item["type"]: item.get("reason") for item in found["status"]["conditions"]}
        assert reasons["DisruptionTarget"] == "PreemptionByScheduler"
        await world.until(lambda: words(world, "Preempted"))


async def test_an_eviction_that_runs_out_of_patience_is_given_up(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        uid = await run_on(world, "a")
        await world.server.apply(budget(0))
        wanted = PodEvictionRequested(
            namespace="default", name="a", initiator="descheduler", reason="Evicted", give_up_after_seconds=1
        )
        await world.append(AggregateRef("eviction", uid), wanted)
        await world.until(lambda: uid not in world.view.state.of_kind(EvictionState))

        last = await world.bus.events.last_of(AggregateRef("eviction", uid))
        assert last is not None
        assert last.type == "PodEvictionFailed"


# -- nodes ------------------------------------------------------------------------------------------------------------


def overcommit(cpu: int | None) -> NodeOvercommitComputed:
    return NodeOvercommitComputed(
        batch_cpu_milli=cpu,
        batch_memory_bytes=None if cpu is None else 1 << 30,
        origin={} if cpu is None else {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": 1 << 30},
        reason="first",
        based_on=BasedOn(),
    )


async def test_batch_resources_stand_on_the_node_and_leave_it_again(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        await world.until(lambda: world.view.node("node-1"))
        ref = AggregateRef("nodepolicy", "node-1")

        def batch() -> object:
            found = world.server.object("nodes", "", "node-1")
            assert found is not None
            return found["status"]["allocatable"].get("kubernetes.io/batch-cpu")

        world.server.faults.answer("PATCH", "/nodes/node-1/status", 409, times=1)
        world.server.faults.answer("PATCH", "/nodes/node-1/status", 429, times=1, retry_after=0)
        await world.append(ref, overcommit(3700))
        await world.until(lambda: batch() == "3700")
        await world.until(lambda: world.gateway.is_idle)
        found = world.server.object("nodes", "", "node-1")
        assert found is not None
        origin = json.loads(found["metadata"]["annotations"]["node.koordinator.sh/originExtendedAllocatable"])
        assert origin["resources"]["kubernetes.io/batch-cpu"] == "3700"

        await world.server.patch_status("nodes", "", "node-1", {"allocatable": {"kubernetes.io/batch-cpu": "1"}})
        await world.until(lambda: batch() == "3700")  # whoever overwrites it is overwritten
        await world.append(ref, overcommit(None))
        await world.until(lambda: batch() is None)


async def test_node_slo_is_created_updated_and_deleted_with_its_node(tmp_path: Path) -> None:
    settings = gateway_settings(writes=Writes(node_slo=True, node_metric=True))
    async with gateway_world(tmp_path, settings=settings, begin=False) as world:
        await install_crds(world.server)
        await world.begin()
        await world.server.apply(node("node-1"))
        await world.until(lambda: world.view.node("node-1"))
        ref = AggregateRef("nodepolicy", "node-1")

        def percent() -> object:
            found = world.server.object("nodeslos", "", "node-1")
            return (
                None if found is None else found["spec"]["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"]
            )

        for wanted in (65, 70):
            spec = {"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": wanted}}
            await world.append(ref, NodeSloRendered(spec=spec))
            await world.until(lambda wanted=wanted: percent() == wanted)
        await world.server.delete("nodes", "", "node-1")
        await world.until(lambda: world.server.object("nodeslos", "", "node-1") is None)


async def test_reports_of_a_stock_agent_are_taken_in(tmp_path: Path) -> None:
    settings = gateway_settings(take_node_metrics=True)
    async with gateway_world(tmp_path, settings=settings, begin=False) as world:
        await install_crds(world.server)
        await world.begin()
        await world.server.apply(
            {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": "node-1"}}
        )
        usage = {"nodeUsage": {"resources": {"cpu": "1500m", "memory": "2Gi"}}}
        await world.server.patch_status(
            "nodemetrics", "", "node-1", {"updateTime": "2026-11-21T10:00:00Z", "nodeMetric": usage}
        )
        ref = AggregateRef("node", "node-1")
        for _ in range(500):
            found = await world.bus.observations.latest([ref])
            if found:
                break
            await asyncio.sleep(0.01)
        else:
            pytest.fail("no report came")
        report = CATALOGUE.read(found[0])
        assert json.loads(found[0].body)["node_usage"] == {"cpu_milli": 1500, "memory_bytes": 2 << 30}
        assert report is not None


# -- credentials ------------------------------------------------------------------------------------------------------


async def test_over_tls_with_a_token_that_is_replaced(tmp_path: Path) -> None:
    files = ensure_tls_files(tmp_path / "tls", now=SystemClock().now())
    async with running_api_server(tls=files) as server:
        server.users["first"] = User("koord-manager")
        async with gateway_world(tmp_path, begin=False) as world:
            world.server = server
            await world.begin(token="first")
            await server.apply(pod("a"))
            await world.mirrored("a")
            del server.users["first"]
            server.users["second"] = User("koord-manager")
            server.kubeconfig(tmp_path / "kubeconfig", token="second")
            await world.drop_watches("pods")
            await server.apply(pod("b"))
            await world.mirrored("b")
            await world.stop()


async def test_a_restart_writes_nothing_anew(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        for number in range(3):
            await world.server.apply(node(f"node-{number}"))
        await world.until(lambda: len(world.view.state.of_kind(NodeSpecState)) == 3 and world.gateway.is_idle)
        before = world.view.state.position
        await world.stop()
        await world.begin()
        await world.until(lambda: world.gateway.is_idle)

        assert world.view.state.position == before


# -- users' custom resources ------------------------------------------------------------------------------------------


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


async def test_the_root_quota_of_a_profile_is_kept_as_rendered(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        await install_crds(world.server)
        await world.begin()
        tree = "quota.scheduling.koordinator.sh/tree-id"
        profile = {
            "apiVersion": "quota.koordinator.sh/v1alpha1",
            "kind": "ElasticQuotaProfile",
            "metadata": {"name": "pool", "namespace": "default"},
            "spec": {"quotaName": "root", "nodeSelector": {"matchLabels": {"pool": "a"}}},
        }
        await world.server.apply(profile)
        ref = custom_ref("elasticquotaprofiles", "default", "pool")
        await world.until(lambda: ref.id in world.view.state.of_kind(CustomObjectState))
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
        await world.server.apply(
            {**quota(), "metadata": {"name": "root", "namespace": "default"}, "spec": {"min": {"cpu": 1}}}
        )
        await world.until(lambda: quota().get("spec", {}).get("min") == {"cpu": "8"})


# -- two instances ----------------------------------------------------------------------------------------------------


async def test_of_two_instances_one_leads_by_the_lease_and_the_other_takes_over(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        times = LeaseTimes(duration=1.5, renew_deadline=1.0, retry=0.1)
        api = await connect_api(world.server.kubeconfig(tmp_path / "lease"), qps=0, burst=1)

        def candidate(name: str) -> LeaseLeadership:
            return LeaseLeadership(
                namespace="koordinator-system",
                name="koordinator-manager",
                holder=name,
                clock=SystemClock(),
                http=LeaseHttp(api),
                times=times,
            )

        first, second = candidate("first"), candidate("second")
        campaigns = [asyncio.create_task(first.campaign())]
        leader = await world.begin(leadership=first)
        await world.until(lambda: first.term is not None)
        campaigns.append(asyncio.create_task(second.campaign()))
        backup = await world.begin(leadership=second)
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        assert second.term is None
        assert backup.gateway.is_idle is False

        campaigns[0].cancel()  # the first one is cut off: it neither renews nor lets go
        await leader.stop()
        await world.place(uid, "node-1")
        await world.until(lambda: world.node_of("a") == "node-1")
        assert second.term is not None
        assert second.term.epoch == 2
        for campaign in campaigns:
            campaign.cancel()
        await asyncio.gather(*campaigns, return_exceptions=True)
        await world.stop()
        await api.close()


async def test_a_refused_root_quota_and_abnormal_nodes_are_told_as_events(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        await install_crds(world.server)
        world.server.faults.answer("POST", "/elasticquotas", 403)
        await world.begin()
        rendered = QuotaProfileRendered(quota_namespace="default", quota_name="root", min={"cpu": "8"})
        await world.append(AggregateRef("quotaprofile", "default=pool"), rendered)
        await world.until(lambda: words(world, "CreateQuotaFailed"))
        abnormal = MassAbnormalityChanged(active=True, abnormal=9, cap=3, nodes=20, examples=["node-1"])
        await world.append(SLO_ADJUST, abnormal)
        await world.until(lambda: words(world, "MassAbnormalNodes"))

        assert words(world, "CreateQuotaFailed")[0]["involvedObject"]["kind"] == "ElasticQuotaProfile"
        assert "9 of 20 nodes" in words(world, "MassAbnormalNodes")[0]["message"]


async def test_who_no_longer_leads_sends_nothing_more_and_goes_on_in_its_next_term(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        leadership = Interrupted()
        await world.begin(leadership=leadership)
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")
        await world.until(lambda: world.gateway.is_idle)
        leadership.term = None
        await world.place(uid, "node-1")
        await world.server.apply(pod("b"))
        await asyncio.sleep(0.3)
        assert world.node_of("a") == ""
        assert world.spec(world.uid("b")) is None

        leadership.term = Term("test", 2, 0.0)
        await world.until(lambda: world.node_of("a") == "node-1")
        await world.mirrored("b")
