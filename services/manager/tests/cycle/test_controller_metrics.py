"""The figures of the control rounds carry the reference's names, and forget nodes that are no longer computed."""

from koord_manager.domain.controllers.node_resources.decide import overcommit
from koord_manager.domain.gateway.requests import Meaning
from koord_manager.shell.controller_metrics import ControllerMetrics
from koordcore.events.envelope import AggregateRef
from koordcore.events.nodepolicy import NodeHealthAssessed, NodeRatiosComputed, NodeSloRendered
from koordcore.events.objects import NodeSpecDeleted
from prometheus_client import CollectorRegistry
from support.manager.world import ManagerWorld


def test_what_a_node_lends_is_shown_in_cores_and_bytes_until_nobody_computes_it() -> None:
    registry = CollectorRegistry()
    metrics = ControllerMetrics(registry)
    world = ManagerWorld()
    world.configure(colocation={"enable": True})
    world.plain_node()
    world.report(cpu_milli=0)
    found = overcommit(world.inputs())
    metrics.lent("n", found, 0)

    def lent(resource: str, unit: str) -> float | None:
        name = "slo_controller_node_extended_resource_allocatable_internal"
        return registry.get_sample_value(name, {"node": "n", "resource": resource, "unit": unit})

    assert found.batch is not None
    assert lent("kubernetes.io/batch-cpu", "integer") == found.batch.cpu_milli / 1000
    assert lent("kubernetes.io/batch-memory", "byte") == found.batch.memory_bytes
    metrics.forget_before(300)
    assert lent("kubernetes.io/mid-cpu", "integer") is not None
    metrics.forget_before(301)
    assert lent("kubernetes.io/mid-cpu", "integer") is None


def test_levels_of_health_are_those_of_existing_nodes() -> None:
    registry = CollectorRegistry()
    metrics = ControllerMetrics(registry)
    world = ManagerWorld()
    critical = NodeHealthAssessed(level="Critical", abnormality=1.0, weight=10, reported_weight=10, cause="level")
    for name in ("a", "b"):
        world.plain_node(name)
        world.fact(AggregateRef("nodepolicy", name), critical)
    world.fact(AggregateRef("nodespec", "b"), NodeSpecDeleted(name="b"))
    metrics.assessed(world.view)
    (family,) = [each for each in registry.collect() if "level" in (each.samples[0].labels if each.samples else {})]
    assert {sample.labels["level"]: sample.value for sample in family.samples}["Critical"] == 1


def test_decisions_are_counted_by_the_references_reasons() -> None:
    registry = CollectorRegistry()
    metrics = ControllerMetrics(registry)
    world = ManagerWorld()
    world.configure(colocation={"enable": True})
    world.plain_node(**{"node.koordinator.sh/cpu-normalization-enabled": "yes"})
    events = [draft.event for draft in world.decided(NodeRatiosComputed)]
    metrics.decided(events, stored=True)
    metrics.decided(events, stored=False)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    count = "slo_controller_node_resource_reconcile_count"
    assert value(count, status="succeeded", reason="patchNodeMeta") == 1
    assert value(count, status="failed", reason="patchNodeMeta") == 1
    failed = {"plugin": "CPUNormalization", "status": "failed", "reason": "ResourceCalculate"}
    assert value("slo_controller_node_resource_run_plugin_status", **failed) == 2


def test_with_an_api_server_its_answers_are_what_is_counted_as_reconciled() -> None:
    registry = CollectorRegistry()
    metrics = ControllerMetrics(registry, writes_objects=True)
    world = ManagerWorld()
    world.configure(colocation={"enable": True})
    world.plain_node(**{"node.koordinator.sh/network-bandwidth": "1"})
    metrics.decided([draft.event for draft in world.decided(NodeSloRendered)], stored=True)
    for purpose, meaning in (
        ("create-nodeslo", Meaning.DONE),
        ("update-nodeslo", Meaning.CONFLICT),
        ("delete-nodeslo", Meaning.GONE),
        ("node-status", Meaning.GONE),
        ("topology-zones", Meaning.DONE),
        ("bind", Meaning.DONE),
    ):
        metrics.wrote(purpose, meaning)

    def reconciled(what: str) -> dict[tuple[str, str], float]:
        (family,) = [each for each in registry.collect() if each.name == f"slo_controller_{what}_count"]
        return {(sample.labels["status"], sample.labels["reason"]): sample.value for sample in family.samples}

    assert reconciled("nodeslo_reconcile") == {
        ("succeeded", "createNodeSLO"): 1,
        ("failed", "updateNodeSLO"): 1,
        ("succeeded", "deleteNodeSLO"): 1,
    }
    assert reconciled("node_resource_reconcile") == {
        ("failed", "updateNodeNotFound"): 1,
        ("succeeded", "updateNodeResourceTopology"): 1,
    }
    assert reconciled("nodeslo_spec_parse")["succeeded", "getSystemConfigSpec"] == 1
