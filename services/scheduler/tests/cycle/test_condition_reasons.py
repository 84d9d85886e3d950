"""The reason of the condition PodScheduled=False tells autoscalers whether another node would help."""

from typing import Any

import pytest
from koord_scheduler.domain.loop.cycle.deciding import gated
from koord_scheduler.domain.plugins.pod_gates import MOST_POD_TERMS
from koordcore.events.explanations import PodGated, PodUnschedulable
from koordcore.events.objects import CustomObjectObserved, custom_ref
from koordcore.protocol import keys
from koordcore.protocol.objects import Pod
from support.scheduler.configurations import JOB_PREEMPTION
from support.scheduler.scheduling import Scheduler, SmallLog, node, pod, with_metadata


def member(uid: str, cpu: str = "1", **spec: Any) -> Pod:
    labels = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "2"}
    return with_metadata(pod(uid, {"cpu": cpu}, **spec), labels=labels)


def reasons(*pods: Pod, quota_cpu: str = "", least_cpu: str = "", configuration: str = "") -> dict[str, str]:
    """The last reason of each pod on one node of 4 cores. `quota_cpu`: max of the quota; `least_cpu`: its min, "" for
    the same.
    """
    scheduler = Scheduler(SmallLog(), configuration)
    scheduler.log.add_node(node("n"))
    if quota_cpu:
        ref = custom_ref("elasticquotas", "default", "team")
        least = {"cpu": least_cpu or quota_cpu, "memory": "1Gi"}
        spec = {"max": {"cpu": quota_cpu, "memory": "1Gi"}, "min": least}
        document = {"metadata": {"namespace": "default", "name": "team"}, "spec": spec}
        scheduler.log.say(ref.kind, ref.id, CustomObjectObserved(object=document))
    for each in pods:
        scheduler.log.add_pod(each)
    scheduler.run()
    told = [*scheduler.explanations, *gated(scheduler.state)]
    return {each.uid: each.event.reason for each in told if isinstance(each.event, PodGated | PodUnschedulable)}


def in_quota(one: Pod) -> Pod:
    return with_metadata(one, labels={keys.QUOTA_NAME: "team"})


def test_pod_that_fits_nowhere_is_unschedulable() -> None:
    assert reasons(pod("p", {"cpu": "5"})) == {"p": ""}


def test_pod_of_an_exhausted_quota_is_not() -> None:
    assert reasons(in_quota(pod("p", {"cpu": "2"})), quota_cpu="1") == {"p": "QuotaExceeded"}


def test_pod_whose_quota_grows_with_the_cluster_is_unschedulable_so_that_a_node_comes() -> None:
    pods = [in_quota(pod(uid, {"cpu": "3"})) for uid in ("p", "q")]
    assert reasons(*pods, quota_cpu="100", least_cpu="1") == {"q": ""}


def test_pod_that_may_not_be_preempted_and_exceeds_the_min_is_not() -> None:
    fixed = with_metadata(pod("p", {"cpu": "3"}), labels={keys.QUOTA_NAME: "team", keys.QUOTA_PREEMPTIBLE: "false"})
    assert reasons(fixed, quota_cpu="100", least_cpu="1") == {"p": "QuotaExceeded"}


def test_members_of_an_incomplete_gang_wait_for_it_and_gated_pods_for_their_gates() -> None:
    gates = [{"name": "hold"}]
    assert reasons(member("m0"), member("m1", schedulingGates=gates), pod("p", schedulingGates=gates)) == {
        "m0": "WaitingForGang",
        "m1": "SchedulingGated",
        "p": "SchedulingGated",
    }


def test_members_of_a_gang_that_does_not_fit_are_all_unschedulable_so_that_enough_nodes_come() -> None:
    assert reasons(member("m0", cpu="3"), member("m1", cpu="3")) == {"m0": "", "m1": ""}


def test_members_whose_nodes_a_job_preemption_took_have_the_reason_of_the_member_that_failed_first() -> None:
    pods = [member(uid, cpu="3") for uid in ("m0", "m1")]
    assert reasons(*pods, configuration=JOB_PREEMPTION) == {"m0": "", "m1": ""}


def test_members_of_a_gang_whose_quota_is_exhausted_have_the_reason_of_the_member_that_failed_first() -> None:
    pods = [in_quota(member(uid, cpu="2")) for uid in ("m0", "m1")]
    assert reasons(*pods, quota_cpu="3") == {"m0": "QuotaExceeded", "m1": "QuotaExceeded"}


@pytest.mark.parametrize("field", ["workloadRef", "schedulingGroup"])
def test_pods_of_groups_of_the_workload_api_are_kept_back_with_the_reason(field: str) -> None:
    scheduler = Scheduler(SmallLog())
    scheduler.log.add_node(node("n"))
    group: dict[str, Any] = {field: {"name": "w", "podGroup": "g", "podGroupName": "g"}}
    scheduler.log.add_pod(pod("alone", {"cpu": "1"}, **group))
    scheduler.log.add_pod(pod("running", {"cpu": "1"}, nodeName="n", **group))
    labels = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "1"}
    scheduler.log.add_pod(with_metadata(pod("of-both", {"cpu": "1"}, **group), labels=labels))
    scheduler.run()
    [told] = gated(scheduler.state)
    assert isinstance(told.event, PodGated)
    assert (told.uid, told.event.reason) == ("alone", "WaitingForGang")
    assert told.message.startswith(f"spec.{field}: groups of the Workload API are not supported; ")
    assert {uid: each.node or each.bound_node for uid, each in scheduler.state.pods.items()} == {
        "alone": "",
        "running": "n",
        "of-both": "n",
    }


def test_a_pod_with_too_many_terms_about_other_pods_is_kept_back_with_the_reason() -> None:
    def away_from(others: int) -> dict[str, Any]:
        terms = [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": f"a-{number}"}}}
            for number in range(others)
        ]
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}

    scheduler = Scheduler(SmallLog())
    scheduler.log.add_node(node("n"))
    scheduler.log.add_pod(pod("most", {"cpu": "1"}, affinity=away_from(MOST_POD_TERMS)))
    scheduler.log.add_pod(pod("more", {"cpu": "1"}, affinity=away_from(MOST_POD_TERMS + 1)))
    scheduler.run()
    [told] = gated(scheduler.state)
    assert (told.uid, told.message) == (
        "more",
        "spec.affinity: at most 256 terms about other pods are supported, got 257",
    )
    assert scheduler.state.pods["most"].node == "n"
