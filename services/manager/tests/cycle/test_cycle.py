"""The manager's loops over a log in memory: documents in, facts out; reports in, batch resources out."""

import asyncio
from datetime import timedelta

import pytest
from koord_manager.cycle import drop_keys_of_gateway, run_cycle, run_cycles
from koord_manager.domain.admission.options import Options
from koord_manager.domain.cluster.queued_objects import FEWEST_KEYS
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.controller_names import (
    DUPLICATE_NAME,
    EVICTION,
    EXPLANATION_EXPIRY,
    NODE_OBJECTS,
    OVERCOMMIT,
    RESERVATION_COLLECTION,
    VOLUME_CLAIM,
    WORKLOAD,
)
from koord_manager.domain.documents.apply import Target
from koord_manager.shell.documents.processing import process_documents
from koordcore.bus.adapters.memory import MemoryLog, MemoryObservationLog
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin
from koordcore.events.nodepolicy import NodeHealthAssessed
from koordcore.events.objects import NodeSpecDeleted, PodSpecAdded, WorkloadObserved
from koordcore.protocol.manifests import read_documents
from koordcore.protocol.objects import ObjectMeta, Workload
from koordcore.state import ClusterState
from koordcore.state.aggregates import PodSpecState, WorkloadState
from koordctl.objects.lint import Linter
from msgspec import structs
from support.histories.recording import stored
from support.manager.loops import CONFIG, NODE, AlwaysLeading, Manager, pod, running
from support.until import until


async def test_documents_are_answered_in_order_each_for_itself() -> None:
    manager = Manager(MemoryLog())
    async with running(manager):
        results = await manager.apply(
            "\n---\n".join([pod("a"), "kind: Nonsense", pod("b", "1x"), pod("a"), pod("a", "2")])
        )

    assert [result.action for result in results] == ["created", "refused", "refused", "unchanged", "refused"]
    assert results[0].seq == 1
    assert results[0].traceparent.startswith("00-")
    assert results[4].errors[0].field == "spec.containers[c].resources.requests.cpu"


async def test_thousands_of_documents_in_one_request_all_land() -> None:
    manager = Manager(MemoryLog())
    async with running(manager):
        results = await manager.apply("\n---\n".join(pod(f"p-{number}") for number in range(1200)))

    assert {result.action for result in results} == {"created"}
    assert len(manager.view.state.of_kind(PodSpecState)) == 1200


class FailingExplanations(MemoryObservationLog):
    """A stream of explanations that cannot be written."""

    async def publish(self, ref: AggregateRef, event: Event, origin: Origin) -> None:
        raise RuntimeError("a defect")


async def test_a_document_whose_explanation_fails_is_answered_and_so_is_the_next_one() -> None:
    manager = Manager(MemoryLog())
    manager.context = manager.context._replace(explanations=FailingExplanations())
    forbidden = pod("a").replace(
        "metadata: {", "metadata: {labels: {koordinator.sh/qosClass: LSR, koordinator.sh/priority-class: koord-batch}, "
    )
    async with running(manager):
        answers = [asyncio.create_task(manager.apply(text)) for text in (forbidden, pod("b"))]
        await until(lambda: all(answer.done() for answer in answers))
    assert [answer.result()[0].action for answer in answers] == ["refused", "created"]


async def test_an_instance_that_does_not_lead_writes_nothing() -> None:
    log = MemoryLog()
    manager = Manager(log, leads=False)
    async with running(manager):
        (result,) = await manager.apply(pod("a"))

    assert result.action == "failed"
    assert log.last_seq == 0


async def test_two_managers_that_both_believe_to_lead_never_overwrite_each_other() -> None:
    log = MemoryLog()
    one, two = Manager(log, name="one"), Manager(log, name="two")
    async with running(one, two):
        await one.apply(NODE)
        changes = [
            NODE.replace("metadata: {name: n.1}", f"metadata: {{name: n.1, labels: {{v: '{n}'}}}}") for n in range(20)
        ]
        answers = await asyncio.gather(
            *((one if number % 2 else two).apply(text) for number, text in enumerate(changes))
        )
        await one.folded(log.last_seq)
        await two.folded(log.last_seq)

    assert {result.action for (result,) in answers} <= {"configured", "unchanged"}
    assert log.last_seq == 1 + sum(result.action == "configured" for (result,) in answers)
    assert one.view.state.hash() == two.view.state.hash()


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  template: {spec: {containers: [{name: main, image: nginx}]}}
"""


async def test_of_objects_with_one_name_the_leader_keeps_the_first() -> None:
    """A leader that was paused may create what its successor has created for the repeated request."""
    log = MemoryLog()
    manager = Manager(log)
    async with running(manager):
        await manager.apply("\n---\n".join([pod("web", "4"), DEPLOYMENT]))
        view = manager.view
        pods, workloads = view.state.of_kind(PodSpecState), view.state.of_kind(WorkloadState)
        ((first, kept),), ((first_workload, workload),) = pods.items(), workloads.items()
        store(log, AggregateRef("podspec", "late"), PodSpecAdded(object=kept.object))
        meta = structs.replace(workload.object.metadata, uid="late", creation_timestamp="2021-01-01T00:00:00Z")
        late = structs.replace(workload.object, metadata=meta)
        await manager.folded(store(log, AggregateRef("workloadspec", "late"), WorkloadObserved(object=late)))
        assert [*pods, *workloads] == [first, "late", first_workload, "late"]

        restored = ManagerView(ClusterState.restore(b"".join(view.state.snapshot())))
        assert {key.partition(".")[2] for key in restored.queue.take(DUPLICATE_NAME)} == {*pods, *workloads}
        assert "2 objects whose name was taken deleted" in await run_cycle(manager.context, manager.policies)
        assert first in pods
        assert "late" not in pods
        assert list(workloads) == [first_workload]


async def test_a_report_becomes_batch_resources_with_every_term_and_the_agent_is_told() -> None:
    manager = Manager(MemoryLog())
    async with running(manager):
        await manager.apply("\n---\n".join([CONFIG, NODE, pod("web", "4")]))
        manager.report("n.1", cpu_milli=1500)
        await run_cycle(manager.context, manager.policies)

        policy = manager.view.policy("n_1")
        assert policy is not None
        # 10 cores - 40 % margin - system 0.1 - used 1.5
        assert policy.batch_cpu_milli == 10_000 - 4000 - 100 - 1500
        assert policy.terms["cpu"].margin == 4000
        assert policy.reason == "first"
        desired = await manager.desired.get("n.1")
        assert desired is not None
        assert desired.slo is not None
        assert desired.slo["resourceUsedThresholdWithBE"]["cpuSuppressPolicy"] == "cfsQuota"

        # a small move is not published, a large one is
        manager.report("n.1", cpu_milli=1550)
        await run_cycle(manager.context, manager.policies)
        assert manager.view.policy("n_1") == policy
        manager.report("n.1", cpu_milli=4000)
        assert "1 nodes overcommitted" in await run_cycle(manager.context, manager.policies)


async def test_a_cycle_resets_the_health_that_a_node_inherited_from_a_deleted_one() -> None:
    log = MemoryLog()
    manager = Manager(log)
    async with running(manager):
        await manager.apply(NODE)
        await run_cycle(manager.context, manager.policies)  # resets every node, because health is switched off
        lowered = NodeHealthAssessed(
            level="Critical", abnormality=1.0, weight=10, reported_weight=10, offsets={"cpu": -5}, cause="level"
        )
        await manager.folded(store(log, AggregateRef("nodepolicy", "n_1"), lowered))
        await run_cycle(manager.context, manager.policies)
        policy = manager.view.policy("n_1")
        assert policy is not None
        assert policy.health is not None
        assert policy.health.level == "Critical", "it is the node's own"
        await manager.folded(store(log, AggregateRef("nodespec", "n_1"), NodeSpecDeleted(name="n.1")))
        await manager.apply(NODE)
        await run_cycle(manager.context, manager.policies)
        policy = manager.view.policy("n_1")
        assert policy is not None
        assert policy.health is not None
        assert (policy.health.level, policy.health.reported_weight) == ("Healthy", 100)


def store(log: MemoryLog, ref: AggregateRef, event: Event) -> int:
    """Appends a fact as another writer does; its position."""
    fact = stored(log.last_seq + 1, Draft(ref, event, 0))
    return log.store(ref, dict(fact.headers), fact.body)


async def test_batch_resources_are_withdrawn_when_the_report_grows_old_or_colocation_is_disabled() -> None:
    manager = Manager(MemoryLog())
    async with running(manager):
        await manager.apply("\n---\n".join([CONFIG, NODE]))
        manager.report("n.1", cpu_milli=0)
        await run_cycle(manager.context, manager.policies)

        await manager.clock.advance(timedelta(minutes=15).total_seconds())
        await run_cycle(manager.context, manager.policies)
        policy = manager.view.policy("n_1")
        assert policy is not None
        assert policy.batch_cpu_milli is not None, "exactly at the limit a report is still fresh"
        await manager.clock.advance(1)
        await run_cycle(manager.context, manager.policies)
        policy = manager.view.policy("n_1")
        assert policy is not None
        assert (policy.batch_cpu_milli, policy.reason) == (None, "degraded: metric expired")
        await manager.clock.advance(1)
        manager.view.queue.begin(manager.clock.now().timestamp())
        assert manager.view.queue.take(OVERCOMMIT) == [], "a report grows old once"

        manager.report("n.1", cpu_milli=0)
        await run_cycle(manager.context, manager.policies)
        await manager.apply(CONFIG.replace("true", "false", 1))
        await run_cycle(manager.context, manager.policies)
        policy = manager.view.policy("n_1")
        assert policy is not None
        assert (policy.batch_cpu_milli, policy.reason) == (None, "disabled")


async def test_a_manager_that_starts_with_an_old_report_withdraws_what_is_lent_and_lends_nothing() -> None:
    log = MemoryLog()
    first, second = Manager(log, name="first"), Manager(log, name="second")
    async with running(first):
        await first.apply("\n---\n".join([CONFIG, NODE]))
        first.report("n.1", cpu_milli=0)
        await run_cycle(first.context, first.policies)
    policy = first.view.policy("n_1")
    assert policy is not None
    assert policy.batch_cpu_milli is not None

    async with running(second):
        await second.folded(log.last_seq)
        second.report("n.1", cpu_milli=0)  # the report from before the start, as the log keeps it
        await second.clock.advance(timedelta(minutes=15, seconds=1).total_seconds())
        for _ in range(2):
            await run_cycle(second.context, second.policies)
            policy = second.view.policy("n_1")
            assert policy is not None
            assert (policy.batch_cpu_milli, policy.reason) == (None, "degraded: metric expired")


async def test_a_round_whose_term_ends_writes_no_more_and_the_next_term_decides_it() -> None:
    manager = Manager(MemoryLog())
    async with running(manager):
        await manager.apply("\n---\n".join([CONFIG, NODE]))
        leadership = manager.context.leadership
        assert isinstance(leadership, AlwaysLeading)
        term, leadership.term = leadership.term, None
        position = manager.view.state.position
        await run_cycle(manager.context, manager.policies)
        assert manager.view.state.position == position

        leadership.term = term
        await run_cycle(manager.context, manager.policies)
        policy = manager.view.policy("n_1")
        assert policy is not None
        assert policy.slo is not None


@pytest.mark.parametrize("replicas", [0, 3, 700])
async def test_a_deployment_has_its_pods_after_some_rounds(replicas: int) -> None:
    manager = Manager(MemoryLog())
    text = (
        f"{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{replicas: {replicas}, template: "
        "{spec: {containers: [{name: c, image: i}]}}}}"
    )
    async with running(manager):
        await manager.apply(text)
        while await run_cycle(manager.context, manager.policies):
            pass
        assert len(manager.view.state.of_kind(PodSpecState)) == replicas

        (result,) = await manager.intake.submit([Target("Deployment", "default", "web")], "d")
        while await run_cycle(manager.context, manager.policies):
            pass

    assert result.action == "deleted"
    assert len(manager.view.state.of_kind(PodSpecState)) == 0


async def test_documents_may_use_what_stands_before_them_in_the_same_request() -> None:
    manager = Manager(MemoryLog())
    gold = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: gold}, value: 9000}"
    spec = "{priorityClassName: gold, containers: [{name: c, image: i}]}"
    user = f"{{apiVersion: v1, kind: Pod, metadata: {{name: a}}, spec: {spec}}}"
    async with running(manager):
        results = await manager.apply(f"{gold}\n---\n{user}")

    assert [result.action for result in results] == ["created", "created"]


def quota(name: str, parent: str = "", *, is_parent: bool = False) -> str:
    prefix = "quota.scheduling.koordinator.sh"
    labels = f'{{{prefix}/is-parent: "{str(is_parent).lower()}", {prefix}/parent: "{parent}"}}'
    spec = "{min: {cpu: 1, memory: 1Gi}, max: {cpu: 4, memory: 4Gi}}"
    meta = f"{{name: {name}, namespace: default, labels: {labels}}}"
    return f"{{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: ElasticQuota, metadata: {meta}, spec: {spec}}}"


async def test_a_quota_parent_and_its_children_come_and_go_in_one_request_in_the_order_that_linting_accepts() -> None:
    manager = Manager(MemoryLog())
    text = "\n---\n".join([quota("top", is_parent=True), quota("a", "top"), quota("b", "top")])
    async with running(manager):
        results = await manager.apply(text)
        user = pod("web").replace("{name: web}", "{name: web, labels: {quota.scheduling.koordinator.sh/name: a}}")
        await manager.apply(user)
        names = [("Pod", "web"), ("ElasticQuota", "a"), ("ElasticQuota", "b"), ("ElasticQuota", "top")]
        gone = await manager.intake.submit([Target(kind, "default", name) for kind, name in names], "d")

    findings = Linter(Options()).judge(read_documents(text.encode()))
    # the children's min together are more than the parent's
    assert [result.action for result in results] == ["created", "created", "refused"]
    assert [bool(finding.violations) for finding in findings] == [False, False, True]
    assert [result.action for result in gone] == ["deleted", "deleted", "not-found", "deleted"]


async def test_a_pod_is_mutated_by_the_profile_before_it_in_the_same_request() -> None:
    manager = Manager(MemoryLog())
    profile = (
        "{apiVersion: config.koordinator.sh/v1alpha1, kind: ClusterColocationProfile, metadata: {name: p}, "
        "spec: {labels: {mutated: 'yes'}}}"
    )
    namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: default}}"
    async with running(manager):
        await manager.apply("\n---\n".join([namespace, profile, pod("a")]))

    (spec,) = manager.view.state.of_kind(PodSpecState).values()
    assert spec.object.metadata.labels == {"mutated": "yes"}


async def test_a_workload_whose_priority_class_is_gone_waits_for_it() -> None:
    manager = Manager(MemoryLog())
    gold = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: gold}, value: 9000}"
    web = (
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 1, template: "
        "{spec: {priorityClassName: gold, containers: [{name: c, image: i}]}}}}"
    )
    async with running(manager):
        await manager.apply(f"{gold}\n---\n{web}")
        await manager.intake.submit([Target("PriorityClass", "", "gold")], "gone")
        await run_cycle(manager.context, manager.policies)
        assert len(manager.view.state.of_kind(PodSpecState)) == 0

        await manager.apply(gold)
        await run_cycle(manager.context, manager.policies)
        assert len(manager.view.state.of_kind(PodSpecState)) == 1


async def test_a_new_leader_folds_the_log_before_its_first_decision() -> None:
    log = MemoryLog()
    first, second = Manager(log, name="one"), Manager(log, name="two")
    async with running(first):
        (result,) = await first.apply(pod("web"))
        assert result.action == "created"
    # the second takes over without having folded anything; its fold begins only after it was asked
    asked = asyncio.create_task(second.apply(pod("web")))
    await asyncio.sleep(0)
    async with running(second):
        (result,) = await asked

    assert result.action == "unchanged"
    assert log.last_seq == 1


async def test_who_waits_for_a_fold_that_halts_is_answered() -> None:
    manager = Manager(MemoryLog())

    async def never(_seq: int) -> str | None:
        return "halted before event 7: it cannot be read"

    asked = asyncio.create_task(manager.apply(pod("a")))
    await process_documents(manager.context._replace(folded=never), await manager.intake.take(1))

    (result,) = await asked
    assert (result.action, result.errors[0].rule) == ("failed", "halted before event 7: it cannot be read")


async def test_with_an_api_server_a_standby_drops_the_keys_of_work_that_the_gateway_does() -> None:
    manager = Manager(MemoryLog(), leads=False)
    queue = manager.view.queue
    queues = (EVICTION, VOLUME_CLAIM, RESERVATION_COLLECTION, EXPLANATION_EXPIRY, NODE_OBJECTS, DUPLICATE_NAME)
    for controller in (*queues, OVERCOMMIT):
        queue.add(controller, "key")

    cycles = asyncio.create_task(run_cycles(manager.context._replace(standalone=False), manager.policies))
    await until(lambda: not any(queue.depth(controller) for controller in queues))
    cycles.cancel()
    assert queue.depth(OVERCOMMIT) == 1, "the next leader does that"


async def test_no_node_is_decided_before_the_first_import_has_ended() -> None:
    manager, importing = Manager(MemoryLog()), [True]
    async with running(manager):
        manager.view.queue.add(OVERCOMMIT, "n_1")
        looks = 0

        def is_importing() -> bool:
            nonlocal looks
            looks += 1
            return importing[0]

        context = manager.context._replace(is_importing=is_importing, control_seconds=0.0)
        cycles = asyncio.create_task(run_cycles(context, manager.policies))
        await until(lambda: looks > 3)
        assert manager.view.queue.depth(OVERCOMMIT) == 1
        importing[0] = False
        await until(lambda: manager.view.queue.depth(OVERCOMMIT) == 0)
        cycles.cancel()


async def test_a_standby_keeps_no_keys_of_ended_objects() -> None:
    log = MemoryLog()
    manager = Manager(log, leads=False)
    async with running(manager):
        meta = ObjectMeta(name="w", namespace="d", uid="alive")
        job = Workload(kind="Job", api_version="batch/v1", metadata=meta, replicas=1)
        await manager.folded(store(log, AggregateRef("workloadspec", "alive"), WorkloadObserved(object=job)))
        queue, controllers = manager.view.queue, (WORKLOAD, EVICTION, EXPLANATION_EXPIRY, RESERVATION_COLLECTION)
        queue.add(OVERCOMMIT, "n_1")
        for controller in controllers:
            queue.add_all(controller, (f"ended-{number}" for number in range(2 * FEWEST_KEYS)))
        cycles = asyncio.create_task(run_cycles(manager.context, manager.policies))
        await until(lambda: [queue.depth(controller) for controller in controllers] == [1, 0, 0, 0])
        cycles.cancel()
        assert queue.take(WORKLOAD) == ["alive"]
        assert queue.take(OVERCOMMIT) == ["n_1"]


def test_without_an_api_server_a_standby_keeps_the_keys_for_its_term() -> None:
    manager = Manager(MemoryLog(), leads=False)
    manager.view.queue.add(EVICTION, "key")
    drop_keys_of_gateway(manager.context)
    assert manager.view.queue.take(EVICTION) == ["key"]
