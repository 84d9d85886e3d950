"""What a refused pod lacks stands in its explanation as amounts: of groups of nodes, of its quota, of its gang."""

from typing import Any

from koord_scheduler.domain.loop.cycle.deciding import gated
from koordcore.events.explanations import Diagnosis, GangProgress, PodGated, PodUnschedulable, QuotaShortage, Shortage
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from koordcore.stories.pending import condition_message, pending_sentence
from support.scheduler.devices import CORE, MEMORY, RATIO, asking, device, gpu
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata


def put(log: SmallLog, plural: str, name: str, document: dict[str, Any]) -> None:
    ref = custom_ref(plural, "default", name)
    meta = {"namespace": "default", "name": name}
    log.say(ref.kind, ref.id, CustomObjectObserved(object={**document, "metadata": meta}))


def refusal_of(scheduler: Scheduler, name: str) -> PodUnschedulable:
    scheduler.run()
    told = [each.event for each in scheduler.explanations if each.event.name == name]
    assert isinstance(told[-1], PodUnschedulable)
    return told[-1]


def diagnosis_of(scheduler: Scheduler, name: str) -> Diagnosis:
    found = refusal_of(scheduler, name).diagnosis
    assert found is not None
    return found


def test_a_group_of_nodes_has_the_largest_free_amount_of_each_short_resource() -> None:
    log = SmallLog()
    for number in range(3):
        log.add_node(node(f"small-{number}", cpu=str(1 + number), memory="64Gi"))
    log.add_node(node("full", cpu="16", memory="1Gi"))
    scheduler = Scheduler(log)
    log.add_pod(pod("p", {"cpu": "4", "memory": "2Gi"}))
    found = {tuple(each.resource for each in one.shortages): one for one in diagnosis_of(scheduler, "p").failures}
    assert found.keys() == {("cpu",), ("memory",)}
    assert found["cpu",].count == 3
    assert found["cpu",].shortages == [Shortage("cpu", 4000, 3000, 3000)]
    assert found["memory",].shortages == [Shortage("memory", 2 << 30, 1 << 30, 1 << 30)]
    assert pending_sentence(refusal_of(scheduler, "p")) == (
        "3 of 4 nodes only lack cpu (needs 4, the largest has 3); 1 lacks memory (needs 2Gi, the largest has 1Gi). "
        "Removing pods does not help: larger nodes or smaller requests would help."
    )


def test_pods_that_run_count_and_the_number_of_pods_is_a_resource() -> None:
    log = SmallLog()
    log.add_node(node("n", cpu="4", pods="2"))
    scheduler = Scheduler(log)
    for uid in ("a", "b"):
        log.add_pod(pod(uid, {"cpu": "1500m"}))
    scheduler.run()
    log.add_pod(pod("p", {"cpu": "2"}))
    [failure] = diagnosis_of(scheduler, "p").failures
    assert failure.shortages == [Shortage("pods", 1, 0, 2), Shortage("cpu", 2000, 1000, 4000)]
    assert pending_sentence(refusal_of(scheduler, "p")).startswith(
        "The only node lacks room for more pods (needs 1, at most 0 free) and cpu (needs 2, at most 1 free)."
    )


def test_devices_are_named_with_their_number() -> None:
    log = SmallLog()
    log.add_node(node("n", more={CORE: "200", RATIO: "200", MEMORY: "160Gi"}))
    put(log, "devices", "n", device("n", [gpu(0), gpu(1)]))
    scheduler = Scheduler(log)
    for uid in ("a", "b"):
        log.add_pod(asking(uid, {CORE: "60", RATIO: "50"}))
    scheduler.run()
    log.add_pod(asking("p", {CORE: "50", RATIO: "50"}))
    [failure] = diagnosis_of(scheduler, "p").failures
    assert (failure.plugin, failure.needs) == ("DeviceShare", "1 GPU with gpu-core 50, gpu-memory-ratio 50 left")
    assert pending_sentence(refusal_of(scheduler, "p")).startswith(
        "The only node lacks gpu devices (needs 1 GPU with gpu-core 50, gpu-memory-ratio 50 left)."
    )


def test_a_quota_tells_its_limit_and_who_uses_more_than_its_min() -> None:
    log = SmallLog()
    log.add_node(node("n", cpu="16"))
    for name, least in (("a", "4"), ("b", "4")):
        put(log, "elasticquotas", name, {"spec": {"min": {"cpu": least}, "max": {"cpu": "16"}}})
    scheduler = Scheduler(log)

    def of(quota: str, uid: str, cpu: str) -> Pod:
        return with_metadata(pod(uid, {"cpu": cpu}), labels={keys.QUOTA_NAME: quota})

    log.add_pod(of("b", "b-1", "10"))
    scheduler.run()
    log.add_pod(of("a", "a-1", "12"))
    found = diagnosis_of(scheduler, "a-1").quota
    assert found is not None
    assert (found.quota, found.resource, found.needs, found.used, found.kind) == ("a", "cpu", 12_000, 0, "runtime")
    assert found.above_min == {"b": 6000}
    assert "or of b (6), which borrow above their min." in pending_sentence(refusal_of(scheduler, "a-1"))


def test_a_quota_at_its_max_says_so() -> None:
    log = SmallLog()
    log.add_node(node("n", cpu="16"))
    put(log, "elasticquotas", "a", {"spec": {"min": {"cpu": "2"}, "max": {"cpu": "2"}}})
    scheduler = Scheduler(log)
    log.add_pod(with_metadata(pod("p", {"cpu": "3"}), labels={keys.QUOTA_NAME: "a"}))
    assert diagnosis_of(scheduler, "p").quota == QuotaShortage(
        quota="a", resource="cpu", limit=2000, used=0, needs=3000, kind="max"
    )


def test_a_gang_tells_how_many_members_exist_and_are_placed() -> None:
    log = SmallLog()
    log.add_node(node("n", cpu="2"))
    put(log, "podgroups", "g", {"spec": {"minMember": 3, "scheduleTimeoutSeconds": 600}})
    scheduler = Scheduler(log)
    for uid in ("m-0", "m-1"):
        log.add_pod(with_metadata(pod(uid, {"cpu": "1"}), labels={keys.POD_GROUP: "g"}))
    scheduler.run()
    told = [each.event for each in gated(scheduler.state) if isinstance(each.event, PodGated)]
    progress = GangProgress(gang="default/g", needs=3, exist=2)
    assert [each.gang for each in told] == [progress, progress]
    assert pending_sentence(told[-1]) == "Gang default/g: 0 of 3 placed, 2 of 3 exist: waits for 1 more pod."
    # What is written to the pod's condition has no numbers that change while its message stays.
    assert condition_message(told[-1]) == "gang group default/g: gangs [default/g(2/3)] have too few children"
