"""The life of a pod in `koord explain pod`, from events alone."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.events.envelope import StoredEvent
from koordcore.events.explanations import (
    Diagnosis,
    NodeFailure,
    PodGated,
    PodUnschedulable,
    PreemptionDiagnosis,
    Shortage,
    Suggestion,
)
from koordcore.events.gateway import PodBindFailed, PodBound
from koordcore.events.nodestate import ContainerHookApplied, HookedValue, PodsStarted
from koordcore.events.objects import PodSpecAdded, PodSpecChanged
from koordcore.events.observation import Usage
from koordcore.events.pod import PodNominated, PodPlaced, PodReallocated, PodReleased, Victim
from koordcore.protocol.objects import Pod
from koordcore.values import codec
from koordcore.values.allocation import Allocation, ClaimBinding
from koordctl.pod.lines import diagnosis_lines, headline, pod_lines
from koordctl.pod.story import PodStory, Used, explained_pod
from support.explained_events import EXPLANATION, TRACE, stored

USED = Used(usage=Usage(cpu_milli=700), at="2026-01-01T00:00:30Z", qos="LS")


def the_pod() -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    spec = {"nodeSelector": {"disk": "ssd"}, "containers": [container]}
    return codec.convert({"metadata": {"name": "web", "namespace": "d", "uid": "u"}, "spec": spec}, Pod)


def submitted() -> StoredEvent:
    return stored(1, "podspec.u", PodSpecAdded(object=the_pod()))


def refused(seq: int = 2, *, based_on: int = 8, attempt: int = 1, diagnosis: Diagnosis | None = None) -> StoredEvent:
    message = "0/5 nodes are available: 5 Insufficient cpu." + (" preemption: lengthy" if diagnosis else "")
    event = PodUnschedulable(
        namespace="d",
        name="web",
        attempt=attempt,
        queued_at="",
        message=message,
        explanation=EXPLANATION,
        diagnosis=diagnosis,
    )
    return stored(seq, "pod.u", event, based_on=based_on)


def placed(seq: int = 9) -> StoredEvent:
    event = PodPlaced(
        namespace="d", name="web", node="n.1", requests={"cpu": 2000}, attempt=2, queued_at="", explanation=EXPLANATION
    )
    return stored(seq, "pod.u", event)


def test_pod_that_another_scheduler_bound_is_on_its_node() -> None:
    bound = codec.convert({"metadata": {"name": "web", "namespace": "d"}, "spec": {"nodeName": "n"}}, Pod)
    runs = codec.convert({**codec.to_builtins(bound), "status": {"phase": "Running"}}, Pod)
    facts = [submitted(), stored(2, "podspec.u", PodSpecChanged(object=bound))]
    assert (explained_pod("u", facts, []).status, explained_pod("u", facts, []).node) == ("Placed", "n")
    assert explained_pod("u", [*facts, stored(3, "podspec.u", PodSpecChanged(object=runs))], []).status == "Running"


def test_a_resize_is_told_with_what_the_pod_holds_now() -> None:
    resized = PodReallocated(namespace="d", name="web", node="n.1", requests={"cpu": 3000}, reason="resized")
    story = explained_pod("u", [submitted(), placed(), stored(10, "pod.u", resized)], [])
    assert story.moments[-1].sentence == "on n.1: resized"
    assert "it holds cpu 3 now" in " ".join(shown(story))


def told(facts: Sequence[StoredEvent], explanations: Sequence[StoredEvent] = ()) -> list[str]:
    return [moment.step for moment in explained_pod("u", facts, explanations).moments]


def shown(story: PodStory) -> list[str]:
    return [line.text.strip() for line in pod_lines(story, every=True, with_nodes=True)]


def test_story_runs_from_submission_to_usage() -> None:
    started = stored(12, "nodestate.n_1", PodsStarted(pods=["u", "other"]))
    story = explained_pod("u", [started, placed(), submitted()], [refused()], USED)
    assert [moment.step for moment in story.moments] == ["submitted", "unschedulable", "placed", "started"]
    assert (story.status, story.node, story.requests) == ("Running", "n.1", {"cpu": 2000})
    assert story.used == USED
    assert shown(story)[1] == "uid u, requests cpu 2, nodes with disk=ssd"
    assert {moment.trace for moment in story.moments} == {TRACE.split("-")[1]}


def test_what_hooks_changed_is_shown_with_stage_plugin_old_and_new_value() -> None:
    values = [
        HookedValue(name="cfs_quota_us", plugin="CPUSetAllocator", old="100000", new="-1"),
        HookedValue(name="env NVIDIA_VISIBLE_DEVICES", plugin="gpu env inject", new="2"),
    ]
    applied = ContainerHookApplied(
        uid="u", namespace="d", pod="web", container="c", stage="PreCreateContainer", mode="Proxy", values=values
    )
    story = explained_pod("u", [submitted(), placed(), stored(11, "nodestate.n_1", applied)], [])
    assert story.moments[-1].hooked == values
    lines = shown(story)
    assert any("hooked" in line and "container c at PreCreateContainer (Proxy)" in line for line in lines)
    assert "CPUSetAllocator: cfs_quota_us 100000 -> -1" in lines
    assert "gpu env inject: env NVIDIA_VISIBLE_DEVICES (unset) -> 2" in lines


def test_volumes_of_unbound_claims_are_named() -> None:
    chosen = (
        ClaimBinding(namespace="d", claim="data", volume="disk"),
        ClaimBinding(namespace="d", claim="log"),
    )
    event = PodPlaced(
        namespace="d",
        name="web",
        node="node-1",
        requests={"cpu": 2000},
        attempt=1,
        queued_at="2026-01-01T00:00:00Z",
        allocation=Allocation(volume_claims=chosen),
        explanation=EXPLANATION,
    )
    lines = shown(explained_pod("u", [submitted(), stored(9, "pod.u", event)], []))
    assert "given volume disk for claim data" in lines
    assert "given a new volume on node-1 for claim log" in lines


def test_wait_is_told_by_the_times_that_are_shown_whatever_the_hosts_clock_says() -> None:
    story = explained_pod("u", [submitted(), placed(seq=9)], [])
    assert story.wait_seconds == 8.0
    assert "placed 8.0 s after it was submitted" in shown(story)


def test_pod_that_waits_has_no_place_and_no_wait() -> None:
    story = explained_pod("u", [submitted()], [refused()], USED)
    assert (story.status, story.node, story.wait_seconds, story.used) == ("Pending", "", None, None)


def test_released_pod_is_pending_again_unless_it_was_deleted() -> None:
    gone = PodReleased(namespace="d", name="web", node="n.1", reason="node-gone")
    deleted = PodReleased(namespace="d", name="web", node="n.1", reason="deleted")
    assert explained_pod("u", [submitted(), placed(), stored(10, "pod.u", gone)], []).status == "Pending"
    assert explained_pod("u", [submitted(), placed(), stored(10, "pod.u", deleted)], []).status == "Deleted"
    assert told([submitted(), placed(), stored(10, "pod.u", gone)])[-1] == "released"


def test_pod_that_was_placed_anew_does_not_run_before_it_is_started_there() -> None:
    started = stored(10, "nodestate.n_1", PodsStarted(pods=["u"]))
    gone = stored(11, "pod.u", PodReleased(namespace="d", name="web", node="n.1", reason="node-gone"))
    assert explained_pod("u", [submitted(), placed(), started, gone, placed(12)], []).status == "Placed"


def test_the_api_servers_answer_is_part_of_the_story() -> None:
    failed = PodBindFailed(node="n.1", placement=9, reason="AssignedElsewhere")
    bound = PodBound(node="n.1", placement=9)
    facts = [submitted(), placed(), stored(10, "podspec.u", failed), stored(11, "podspec.u", bound)]
    assert told(facts) == ["submitted", "placed", "bind-failed", "bound"]


@given(
    clocks=st.lists(st.integers(0, 50), min_size=6, max_size=6),
    known=st.lists(st.integers(0, 8), min_size=3, max_size=3),
)
def test_no_clock_reorders_facts_nor_explanations(clocks: list[int], known: list[int]) -> None:
    facts = [stored(seq, "podspec.u", PodSpecChanged(object=the_pod()), second=clocks[seq - 1]) for seq in range(1, 7)]
    explanations = [
        stored(number, "pod.u", PodGated(namespace="d", name="web", message=str(number)), based_on=based_on)
        for number, based_on in enumerate(known)
    ]
    moments = explained_pod("u", reversed(facts), explanations).moments
    assert [moment.position for moment in moments if moment.position] == [1, 2, 3, 4, 5, 6]
    assert [moment.sentence for moment in moments if not moment.position] == ["0", "1", "2"]


def preempting() -> Diagnosis:
    victim = Victim(uid="v", namespace="d", name="low")
    return Diagnosis(
        questioned_key="d/web",
        failures=[NodeFailure(plugin="NodeResourcesFit", reason="Insufficient cpu", count=1, nodes=["n.1"])],
        preemption=PreemptionDiagnosis(plugin="DefaultPreemption", node="n.1", victims=[victim], examined=5),
        suggestion=Suggestion(type="WaitingVictimReleased", message="waits until 1 pod(s) have left node n.1"),
    )


def test_details_of_a_refusal_stand_below_it() -> None:
    failure = NodeFailure(plugin="InterPodAffinity", reason="no", count=1, nodes=["n.1"], details=["zone=a: d/shy"])
    lines = diagnosis_lines(Diagnosis(questioned_key="d/web", failures=[failure]))
    assert lines == ["1 x InterPodAffinity: no (removing pods does not help): n.1", "  zone=a: d/shy"]


def test_preemption_is_told_once() -> None:
    diagnosis = preempting()
    assert diagnosis.preemption is not None
    nominated = PodNominated(
        namespace="d", name="web", node="n.1", victims=diagnosis.preemption.victims, plugin="DefaultPreemption"
    )
    facts = [submitted(), stored(9, "pod.u", nominated)]
    story = explained_pod("u", facts, [refused(diagnosis=diagnosis)])
    assert story.why == "1 of 5 nodes only lacks cpu. It fits on n.1 when d/low has left (preemption)."
    assert sum("d/low" in line.text for line in pod_lines(story)) == 1
    lines = [line for line in shown(story) if line != story.why]
    assert sum("d/low" in line for line in lines) == 1
    assert sum("preemption" in line.lower() for line in lines) == 1
    assert not any("lengthy" in line or "waits until" in line for line in lines)
    alone = shown(explained_pod("u", facts, []))  # the explanation is forgotten after a week: the fact tells it then
    assert sum("d/low" in line for line in alone) == 1


def test_explanations_that_say_the_same_are_told_together() -> None:
    explanations = [refused(seq, attempt=seq) for seq in range(1, 8)]
    story = explained_pod("u", [submitted()], explanations)
    lines = [line for line in shown(story) if line != story.why]
    assert sum("Insufficient cpu." in line for line in lines) == 1
    [again] = [line for line in lines if "more until then" in line]
    assert again.endswith("unschedulable      6 times more until then, for the same reasons (attempt 7)")
    assert len(explained_pod("u", [submitted()], explanations).moments) == 8


@pytest.mark.parametrize("between", [placed(5)])
def test_explanations_on_both_sides_of_a_fact_are_told_apart(between: StoredEvent) -> None:
    lines = shown(explained_pod("u", [submitted(), between], [refused(based_on=2), refused(based_on=6)]))
    assert sum("Insufficient cpu." in line for line in lines) == 2


def test_numbers_of_reservations_follow_the_reasons_and_preemption_is_told_once() -> None:
    failed = "0/5 nodes are available: 5 No preemption victims found for incoming pod."
    diagnosis = Diagnosis(questioned_key="d/web", preemption=PreemptionDiagnosis(failed_message=failed))
    message = f"0/5 nodes are available: 5 Insufficient cpu. preemption: {failed} 2 Reservation(s) matched owner total."
    expected = "0/5 nodes are available: 5 Insufficient cpu. 2 Reservation(s) matched owner total."
    assert headline(message, diagnosis) == expected
    assert headline(message, None) == message


def test_past_moment_is_named_in_the_headline() -> None:
    story = explained_pod("u", [submitted()], [])
    assert next(pod_lines(story, " as of position 1")).text == "Pod d/web as of position 1: Pending"


LACKING = [
    NodeFailure(
        plugin="NodeResourcesFit",
        reason="Insufficient cpu, Insufficient memory",
        count=144,
        preempt_might_help=True,
        nodes=[f"n-{number}" for number in range(100)],
        details=["n-0: needs 2 cpu, has 1 of 4 free"],
        shortages=[Shortage("cpu", 2000, 1500, 4000), Shortage("memory", 8 << 30, 1 << 30, 16 << 30)],
    ),
    NodeFailure(plugin="TaintToleration", reason="node(s) had untolerated taint {a: b}", count=7, nodes=["t"]),
]


def test_a_pending_pod_has_its_sentence_and_only_the_newest_attempt_as_a_table() -> None:
    diagnosis = Diagnosis(questioned_key="d/web", failures=LACKING)
    gated = stored(2, "pod.u", PodGated(namespace="d", name="web", message="waits for its gang"))
    explanations = [gated, refused(3), refused(4, attempt=2, diagnosis=diagnosis)]
    lines = [line.text for line in pod_lines(explained_pod("u", [submitted()], explanations))]
    sentence = (
        "144 of 151 nodes lack cpu (needs 2, at most 1500m free) and memory (needs 8Gi, at most 1Gi free); "
        "7 had untolerated taint {a: b}. It helps if pods leave there."
    )
    assert lines[1:] == [
        f"  {sentence}",
        "  uid u, requests cpu 2, nodes with disk=ssd",
        "  2026-01-01 00:00:01.000 UTC  submitted            position 1",
        "  2026-01-01 00:00:02.000 UTC  gated              first of 2 earlier explanations: --all shows them",
        "  2026-01-01 00:00:04.000 UTC  unschedulable      0 of 5 nodes fit (attempt 2)",
        "      NODES  WHY                           NEEDS  MOST FREE  LARGEST  REMOVING PODS",
        "        144  lack cpu                          2      1500m        4  may help",
        "             lack memory                     8Gi        1Gi     16Gi",
        "          7  had untolerated taint {a: b}                             does not help",
    ]


def test_nodes_and_details_are_shown_on_request() -> None:
    diagnosis = Diagnosis(questioned_key="d/web", failures=LACKING)
    story = explained_pod("u", [submitted()], [refused(diagnosis=diagnosis)])
    lines = [line.text.strip() for line in pod_lines(story, with_nodes=True)]
    assert "NodeResourcesFit: Insufficient cpu, Insufficient memory" in lines
    assert "nodes n-0, n-1, n-2, n-3, n-4 and 139 more" in lines
    assert "n-0: needs 2 cpu, has 1 of 4 free" in lines
    assert not any("n-0" in line.text for line in pod_lines(story, every=True))


def test_a_cause_that_is_no_node_stands_below_the_nearest_reason() -> None:
    details = ["n.1: has no disk", "claim more of storage class local requests 50.0Gi"]
    failure = NodeFailure(plugin="VolumeBinding", reason="node(s) no volume", count=1, nodes=["n.1"], details=details)
    story = explained_pod(
        "u", [submitted()], [refused(diagnosis=Diagnosis(questioned_key="d/web", failures=[failure]))]
    )
    lines = [line.text.strip() for line in pod_lines(story)]
    assert details[1] in lines
    assert details[0] not in lines


def test_what_was_said_before_a_pod_had_a_node_does_not_say_why_it_waits_now() -> None:
    gone = stored(10, "pod.u", PodReleased(namespace="d", name="web", node="n.1", reason="node-gone"))
    assert explained_pod("u", [submitted(), placed(), gone], [refused(based_on=2)]).why == ""
    assert explained_pod("u", [submitted(), placed(), gone], [refused(based_on=10)]).why != ""
    assert explained_pod("u", [submitted(), placed()], [refused(based_on=2)]).why == ""


@given(counts=st.lists(st.integers(1, 3000), min_size=1, max_size=40), moves=st.integers(0, 40))
def test_a_pending_pod_fits_on_a_screen_whatever_its_life_was(counts: list[int], moves: int) -> None:
    failures = [
        NodeFailure(
            plugin="NodeResourcesFit",
            reason=f"Insufficient {number}",
            count=count,
            shortages=[Shortage(f"example.com/a-resource-{number}", 1000, number, 2000)] * (number % 3),
        )
        for number, count in enumerate(counts)
    ]
    nominated = PodNominated(namespace="d", name="web", node="n.1", plugin="DefaultPreemption")
    facts = [submitted(), *(stored(seq, "pod.u", nominated, second=1) for seq in range(2, moves + 2))]
    diagnosis = Diagnosis(questioned_key="d/web", failures=failures)
    lines = list(pod_lines(explained_pod("u", facts, [refused(based_on=90, diagnosis=diagnosis)])))
    assert sum(-(-len(line.text) // 90) for line in lines) <= 30
