"""What `koord explain node` and the explanation of a decision say, from events alone."""

import pytest
from koordcore.events.envelope import BasedOn
from koordcore.events.nodepolicy import NodeOvercommitComputed, OvercommitTerms
from koordcore.events.nodestate import AgentStarted, BeCpuSuppressed, NodeProblemsReported
from koordcore.events.objects import NodeSpecAdded
from koordcore.events.observation import NodeUsageReported, PodUsage, Usage
from koordcore.protocol import keys
from koordcore.protocol.drains import DRAIN_NODE, NODE_PLANNING
from koordcore.protocol.objects import NodeCondition
from koordctl.node.lines import formula_line, node_lines
from koordctl.node.story import NodeSample, NodeStory, node_story, sample_of
from koordctl.pod.lines import basis_line, explanation_lines
from msgspec.structs import replace
from support.explained_events import EXPLANATION, stored
from support.scheduler.scheduling import node

ALLOCATABLE = "cpu 4, memory 8.0Gi, pods 110"
SUPPRESSED = "BE may use {0} cores = 16 x 65% - pods 9.151; quota unlimited -> {0} cores (target)"
SUPPRESSED_ONCE = "BE may use {0}000m = 16000m x 65% - pods 9151m; quota -1 -> {0}00000 us (target)"
"""as agents said it before they spoke in cores"""


def report() -> NodeUsageReported:
    usage = PodUsage(
        uid="u", namespace="d", name="web", priority_class="koord-batch", qos="BE", usage=Usage(cpu_milli=700)
    )
    return NodeUsageReported(
        updated_at="2026-01-01T00:00:30Z",
        report_interval_seconds=60,
        aggregate_duration_seconds=300,
        node_usage=Usage(cpu_milli=900, memory_bytes=1 << 28),
        system_usage=Usage(cpu_milli=200),
        pods=[usage],
    )


def story(sample: NodeSample | None = None) -> NodeStory:
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
            BeCpuSuppressed(old_quota_us=-1, new_quota_us=seq * 100_000, terms={}, reason=sentence.format(seq)),
        )
        for seq, sentence in zip(range(2, 10), [SUPPRESSED_ONCE] * 7 + [SUPPRESSED], strict=True)
    ]
    agent = stored(1, "nodestate.n", AgentStarted(host="simulated", version="1"))
    return node_story("n", None, [stored(1, "nodepolicy.n", overcommit)], [agent, *changes], sample)


def test_explanation_says_who_excluded_how_many_and_what_the_scores_are_made_of() -> None:
    assert explanation_lines(EXPLANATION) == [
        "5 nodes considered, 2 feasible",
        "NodeResourcesFit excluded 3: 2 Insufficient cpu, 1 Insufficient memory",
        "score 1. n.1 190 = Taints 100 + Fit 90",
    ]
    assert basis_line(EXPLANATION) == "based on facts up to 8, observations up to 3, policy v1"


@pytest.mark.parametrize(
    ("reservation", "line"),
    [
        ('{"resources":{"cpu":"4","memory":"2Gi"}}', "  reserved on the node cpu 4, memory 2.0Gi: pods do not get it"),
        ('{"reservedCPUs":"0-1,8-9"}', "  reserved on the node cpu 4: pods do not get it"),
        ('{"resources":{"cpu":"4"},"applyPolicy":"ReservedCPUsOnly"}', ""),
        ('{"resources":{"cpu":"much"}}', ""),
    ],
)
def test_node_story_says_what_the_node_keeps_from_pods(reservation: str, line: str) -> None:
    annotations = {keys.NODE_RESERVATION: reservation}
    added = NodeSpecAdded(object=node("n", cpu="16", memory="64Gi", annotations=annotations))
    lines = [each.text for each in node_lines(node_story("n", stored(1, "nodespec.n", added), [], [], None))][1:]
    assert lines[1] == "  allocatable cpu 16, memory 64.0Gi, pods 110"
    assert [each for each in lines if "reserved on the node" in each] == [line] * bool(line)


def test_node_story_has_the_formula_and_the_last_changes() -> None:
    told = story()
    assert (told.host, told.batch_cpu_milli, told.be_quota_us) == ("simulated", 6400, 900_000)
    assert [change.position for change in told.changes] == [5, 6, 7, 8, 9]
    assert formula_line("cpu", told.terms["cpu"]) == (
        "batch cpu 6.4 = capacity 16 - margin 5.6 - max(system 0.5, reserved 1) - used 3   (policy usage)"
    )


def test_every_amount_of_a_node_is_in_cores_or_gibibytes() -> None:
    lines = [line.text.strip() for line in node_lines(story(sample_of(report())), " as of position 9")]
    assert "Node n as of position 9: simulated" in lines
    assert "uses 0.9 cores, 0.25Gi (system 0.2 cores, best effort 0.7 cores)" in lines
    assert "0 running pods, 1 measured, reported 2026-01-01 00:00:30 UTC" in lines
    assert "2026-01-01 00:00:08.000 UTC  unlimited -> 8 cores: BE may use 8 = 16 x 65% - pods 9.151 (target)" in lines
    assert (
        "2026-01-01 00:00:09.000 UTC  unlimited -> 9 cores: BE may use 9 cores = 16 x 65% - pods 9.151 (target)"
        in lines
    )


def test_node_without_a_report_says_so() -> None:
    assert "  0 running pods, no report yet" in [line.text for line in node_lines(story())]


def test_problems_of_the_node_are_those_since_its_agent_started() -> None:
    agent = AgentStarted(host="linux", version="1")
    unread = NodeProblemsReported(problems=["topology is not reported: no list of online CPUs can be read"])
    for events, problems in (
        ([agent, unread], unread.problems),
        ([agent, unread, NodeProblemsReported(problems=[])], []),
        ([agent, unread, agent], []),
    ):
        of_node = [stored(seq, "nodestate.n", event) for seq, event in enumerate(events, 1)]
        told = node_story("n", None, [], of_node, None)
        assert told.problems == problems
        lines = [line.text.strip() for line in node_lines(told) if line.text.strip().startswith("problem")]
        assert lines == [f"problem: {problem}" for problem in problems]


def test_a_node_says_why_no_pod_comes() -> None:
    conditions = [
        NodeCondition(type="Ready", status="False", reason="KubeletNotReady"),
        NodeCondition(type="MemoryPressure", status="True", reason="KubeletHasInsufficientMemory"),
        NodeCondition(type="DiskPressure", status="False", reason="KubeletHasNoDiskPressure"),
    ]
    taints = (
        {"key": DRAIN_NODE, "value": "evacuate", "effect": "NoSchedule"},
        {"key": "gpu", "value": "", "effect": "NoExecute"},
    )
    closed = node("n", taints=taints, unschedulable=True)
    closed = replace(closed, status=replace(closed.status, conditions=conditions))
    told = node_story("n", stored(1, "nodespec.n", NodeSpecAdded(object=closed)), [], [], None)
    assert [line.text for line in node_lines(told)][1:7] == [
        "  status NotReady",
        "  condition Ready (KubeletNotReady)",
        "  condition MemoryPressure (KubeletHasInsufficientMemory)",
        "  closed for new pods by drain evacuate",
        "  cordoned: closed for new pods until `koord uncordon n`",
        f"  taints {DRAIN_NODE}=evacuate:NoSchedule, gpu:NoExecute",
    ]
    well = node_story("n", stored(1, "nodespec.n", NodeSpecAdded(object=node("n"))), [], [], None)
    assert [line.text for line in node_lines(well)][1:3] == ["  status Ready", f"  allocatable {ALLOCATABLE}"]


def test_only_conditions_that_kubernetes_calls_bad_are_red() -> None:
    conditions = [
        NodeCondition(type="Ready", status="True", reason="KubeletReady"),
        NodeCondition(type="EtcdIsVoter", status="True", reason="MemberNotLearner"),
        NodeCondition(type="KernelDeadlock", status="False"),
        NodeCondition(type="MemoryPressure", status="Unknown"),
        NodeCondition(type="PIDPressure", status="True"),
    ]
    known = node("n")
    known = replace(known, status=replace(known.status, conditions=conditions))
    told = node_story("n", stored(1, "nodespec.n", NodeSpecAdded(object=known)), [], [], None)
    lines = {line.text.strip(): line.style for line in node_lines(told)}
    shown = {text: style for text, style in lines.items() if text.startswith("condition ")}
    assert shown == {"condition PIDPressure": "red", "condition EtcdIsVoter (MemberNotLearner)": ""}


def test_a_drain_that_only_labels_its_node_is_named() -> None:
    labelled = node("n", labels={NODE_PLANNING: "evacuate"})
    told = node_story("n", stored(1, "nodespec.n", NodeSpecAdded(object=labelled)), [], [], None)
    assert (told.drain, told.taints, told.ready) == ("evacuate", [], "True")


def test_the_values_of_the_node_slo_are_shown_on_request() -> None:
    told = replace(story(), slo={"resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 65}})
    short = [line.text for line in node_lines(told)]
    assert short[-1] == "  NodeSLO in force: 2 values, --all shows them"
    assert "    resourceUsedThresholdWithBE.enable = true" in [line.text for line in node_lines(told, every=True)]
