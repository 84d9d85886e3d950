"""The gateway's mirror against the emulated API server over HTTP: what objects become facts, and which do not."""

from pathlib import Path
from typing import Any

from koordcore.events.envelope import AggregateRef
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.events.quota import QuotaStatusComputed
from koordcore.protocol import keys
from koordcore.state.aggregates import ConfigState, CustomObjectState
from koordcore.values.allocation import Allocation
from support.kubernetes.gateway_world import (
    facts_of,
    gateway_world,
    install_crds,
    node,
    pod,
    words,
)

Json = dict[str, Any]


def config_map(**data: str) -> Json:
    meta = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


async def test_objects_are_mirrored_and_a_placed_pod_is_bound_with_its_allocation(tmp_path: Path) -> None:
    async with gateway_world(tmp_path) as world:
        await world.server.apply(node("node-1"))
        await world.server.apply(pod("a"))
        uid = await world.mirrored("a")

        await world.place(uid, "node-1", Allocation(cpuset="0-1"))
        await world.until(lambda: world.node_of("a") == "node-1")

        bound = world.server.object("pods", "default", "a")
        assert bound is not None
        assert bound["metadata"]["annotations"][keys.RESOURCE_STATUS] == '{"cpuset":"0-1"}'
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
        await world.until(lambda: ref.id not in world.view.state.of_kind(CustomObjectState))


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
        await world.until(lambda: words(world, "NotMirrored"))


async def test_an_object_that_is_too_large_for_the_log_stops_nothing_nor_does_its_deletion(tmp_path: Path) -> None:
    async with gateway_world(tmp_path, begin=False) as world:
        large = pod("large", nodeSelector={f"label-{number}": "x" * 50 for number in range(20_000)})
        for each in (pod("a"), large, pod("b")):
            await world.server.apply(each)
        await world.begin()
        for name in ("a", "b"):
            await world.mirrored(name)
        assert world.spec(world.uid("large")) is None

        await world.server.delete("pods", "default", "large")
        await world.server.apply(pod("large"))
        await world.mirrored("large")


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
