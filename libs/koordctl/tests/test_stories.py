"""The stories that `koord explain` tells, from events alone."""

from collections.abc import Sequence

from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, BasedOn, Draft, Event, Origin, StoredEvent
from koordcore.events.explanation import NodeScore, PlacementExplanation, PluginExclusion
from koordcore.events.gateway import PodBindFailed, PodBound
from koordcore.events.mirror import PodSpecAdded
from koordcore.events.nodepolicy import NodeOvercommitComputed, OvercommitTerms
from koordcore.events.nodestate import AgentStarted, BeCpuSuppressed, PodsStarted
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordcore.events.pod import PodPlaced, PodReleased
from koordcore.events.verdict import PodUnschedulable
from koordcore.protocol.objects import Pod
from koordcore.values import codec
from koordctl.node_policy import formula_line
from koordctl.stories import explanation_lines, node_story, pod_story, quota

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
EXPLANATION = PlacementExplanation(
    nodes_considered=5,
    nodes_feasible=2,
    exclusions=[PluginExclusion("NodeResourcesFit", 3, {"Insufficient cpu": 2, "Insufficient memory": 1})],
    top=[NodeScore("n.1", 190, {"Fit": 90, "Taints": 100, "Affinity": 0})],
    policy_version="v1",
    based_on=BasedOn(ev=8, obs=3),
)


def stored(seq: int, ref: str, event: Event) -> StoredEvent:
    kind, _, id_ = ref.partition(".")
    origin = Origin(
        causation_id=str(seq),
        correlation_id="u",
        actor="test",
        occurred_at=f"2026-01-01T00:00:{seq:02}.000000Z",
        traceparent=TRACE,
    )
    sealed = CATALOGUE.seal([Draft(AggregateRef(kind, id_), event, 0)], origin)[0]
    return StoredEvent(seq, sealed.ref, sealed.headers, sealed.body, stored_at_ns=seq * 1_000_000)


def submitted() -> StoredEvent:
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    pod = codec.convert({"metadata": {"name": "web", "namespace": "d", "uid": "u"}, "spec": spec}, Pod)
    return stored(1, "podspec.u", PodSpecAdded(object=pod))


def refused(seq: int = 2) -> StoredEvent:
    event = PodUnschedulable(
        namespace="d", name="web", attempt=1, queued_at="", message="0/5 nodes", explanation=EXPLANATION
    )
    return stored(seq, "pod.u", event)


def placed(seq: int = 9) -> StoredEvent:
    event = PodPlaced(
        namespace="d", name="web", node="n.1", requests={"cpu": 2000}, attempt=2, queued_at="", explanation=EXPLANATION
    )
    return stored(seq, "pod.u", event)


def report() -> StoredEvent:
    usage = PodUsage(
        uid="u", namespace="d", name="web", priority_class="koord-prod", qos="LS", usage=Usage(cpu_milli=700)
    )
    event = NodeUsageReported(
        updated_at="2026-01-01T00:00:30Z",
        report_interval_seconds=60,
        aggregate_duration_seconds=300,
        node_usage=Usage(cpu_milli=900),
        system_usage=Usage(cpu_milli=200),
        pods=[usage],
    )
    return stored(1, "node.n_1", event)


def told(facts: Sequence[StoredEvent], verdicts: Sequence[StoredEvent] = ()) -> list[str]:
    return [moment.what for moment in pod_story("u", facts, verdicts, [], None).moments]


def test_pod_story_runs_from_submission_to_usage() -> None:
    started = stored(12, "nodestate.n_1", PodsStarted(pods=["u", "other"]))
    story = pod_story("u", [placed(), submitted()], [refused()], [started], report())
    assert [moment.what for moment in story.moments] == ["submitted", "refused", "placed", "started"]
    assert (story.status, story.node, story.requests) == ("Running", "n.1", {"cpu": 2000})
    assert story.usage == Usage(cpu_milli=700)
    assert story.wait_ms == 8.0
    assert {moment.trace for moment in story.moments} == {TRACE.split("-")[1]}


def test_pod_that_waits_has_no_place_and_no_wait() -> None:
    story = pod_story("u", [submitted()], [refused()], [], None)
    assert (story.status, story.node, story.wait_ms, story.usage) == ("Pending", "", None, None)


def test_released_pod_is_pending_again_unless_it_was_deleted() -> None:
    gone = PodReleased(namespace="d", name="web", node="n.1", reason="node-gone")
    deleted = PodReleased(namespace="d", name="web", node="n.1", reason="deleted")
    assert pod_story("u", [submitted(), placed(), stored(10, "pod.u", gone)], [], [], None).status == "Pending"
    assert pod_story("u", [submitted(), placed(), stored(10, "pod.u", deleted)], [], [], None).status == "Deleted"
    assert told([submitted(), placed(), stored(10, "pod.u", gone)])[-1] == "released"


def test_the_api_servers_answer_is_part_of_the_story() -> None:
    failed = PodBindFailed(node="n.1", placement=9, reason="AssignedElsewhere")
    bound = PodBound(node="n.1", placement=9)
    facts = [submitted(), placed(), stored(10, "podspec.u", failed), stored(11, "podspec.u", bound)]

    assert told(facts) == ["submitted", "placed", "not bound", "bound"]


def test_explanation_says_who_excluded_how_many_and_what_the_scores_are_made_of() -> None:
    assert explanation_lines(EXPLANATION) == [
        "5 nodes considered, 2 feasible",
        "NodeResourcesFit excluded 3: 2 Insufficient cpu, 1 Insufficient memory",
        "score 1. n.1 190 = Taints 100 + Fit 90",
        "based on facts up to 8, observations up to 3, policy v1",
    ]


def test_node_story_has_the_formula_and_the_last_changes() -> None:
    terms = OvercommitTerms(
        capacity=16000,
        margin=5600,
        system_used=500,
        reserved=1000,
        high_priority_used=3000,
        high_priority_request=8000,
        result=6400,
        policy="usage",
    )
    overcommit = NodeOvercommitComputed(
        batch_cpu_milli=6400, batch_memory_bytes=1, reason="changed", terms={"cpu": terms}, based_on=BasedOn()
    )
    changes = [
        stored(
            seq,
            "nodestate.n",
            BeCpuSuppressed(old_quota_us=-1, new_quota_us=seq * 100_000, terms={}, reason=f"because {seq}"),
        )
        for seq in range(2, 10)
    ]
    agent = stored(1, "nodestate.n", AgentStarted(host="simulated", version="1"))
    story = node_story("n", None, [stored(1, "nodepolicy.n", overcommit)], [agent, *changes], report())
    assert (story.host, story.batch_cpu_milli, story.be_quota_us) == ("simulated", 6400, 900_000)
    assert [change.reason for change in story.changes] == [f"because {seq}" for seq in range(5, 10)]
    assert formula_line("cpu", story.terms["cpu"]) == (
        "batch cpu 6.4 = capacity 16 - margin 5.6 - max(system 0.5, reserved 1) - used 3   (policy usage)"
    )


def test_quota_is_said_in_cores() -> None:
    assert (quota(-1), quota(250_000)) == ("unlimited", "2.5 cores")
