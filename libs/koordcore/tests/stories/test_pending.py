"""The sentence about a pending pod: the bottleneck, and what would help."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.events.envelope import BasedOn
from koordcore.events.explanations import (
    DecisionAbandoned,
    Diagnosis,
    GangProgress,
    NodeFailure,
    PodGated,
    PodUnschedulable,
    PreemptionDiagnosis,
    QuotaShortage,
    Shortage,
)
from koordcore.events.pod import PlacementExplanation, Victim
from koordcore.stories.pending import MOST_CHARACTERS, MOST_MESSAGE, amount_for, condition_message, pending_sentence
from msgspec.structs import replace

GIB = 1 << 30
NONE_FOUND = PreemptionDiagnosis(failed_message="0/10 nodes are available: 10 No preemption victims found.")


def refused(
    *failures: NodeFailure,
    nodes: int = 0,
    message: str = "",
    preemption: PreemptionDiagnosis | None = None,
    quota: QuotaShortage | None = None,
) -> PodUnschedulable:
    total = nodes or sum(each.count for each in failures)
    counts = ", ".join(f"{each.count} {each.reason}" for each in failures)
    return PodUnschedulable(
        namespace="d",
        name="web",
        attempt=1,
        queued_at="",
        message=message or f"0/{total} nodes are available: {counts}.",
        explanation=PlacementExplanation(
            nodes_considered=total, nodes_feasible=0, policy_version="v", based_on=BasedOn(ev=1)
        ),
        diagnosis=Diagnosis(questioned_key="d/web", failures=list(failures), preemption=preemption, quota=quota),
    )


def short(count: int, *shortages: Shortage, helps: bool = True) -> NodeFailure:
    reason = ", ".join(f"Insufficient {each.resource}" for each in shortages)
    return NodeFailure(
        plugin="NodeResourcesFit",
        reason=reason,
        count=count,
        preempt_might_help=helps,
        shortages=list(shortages),
    )


def other(count: int, plugin: str, reason: str, *, helps: bool = False, needs: str = "") -> NodeFailure:
    return NodeFailure(plugin=plugin, reason=reason, count=count, preempt_might_help=helps, needs=needs)


GPUS = (Shortage("koordinator.sh/gpu-core", 100, 50, 800), Shortage("koordinator.sh/gpu-memory-ratio", 100, 40, 800))
BATCH_CPU = Shortage("kubernetes.io/batch-cpu", 3200, 2900, 9000)
GOLDEN = [
    pytest.param(
        refused(short(144, *GPUS), short(7, BATCH_CPU), preemption=NONE_FOUND),
        "7 of 151 nodes only lack kubernetes.io/batch-cpu (needs 3200, at most 2900 free); 144 lack GPUs (needs 1, at "
        "most 0.4 free). It helps if pods leave there; preemption found none of lower priority that make room.",
        id="gpus and batch cpu",
    ),
    pytest.param(
        refused(short(2, Shortage("kubernetes.io/batch-cpu", 4000), helps=False)),
        "No node offers kubernetes.io/batch-cpu. Removing pods does not help: colocation offers these resources, if it "
        "is on and the nodes report their usage.",
        id="no batch resources",
    ),
    pytest.param(
        refused(short(1, Shortage("cpu", 64_000, 3500, 4000), helps=False)),
        "The only node lacks cpu (needs 64, the largest has 4). Removing pods does not help: larger nodes or smaller "
        "requests would help.",
        id="too large",
    ),
    pytest.param(
        refused(
            short(8, Shortage("memory", 64 * GIB, 64 * GIB - 1, 128 * GIB)),
            other(2, "NodeUnschedulable", "node(s) were unschedulable"),
            preemption=PreemptionDiagnosis(failed_message="not eligible due to preemptionPolicy=Never."),
        ),
        "8 of 10 nodes only lack memory (needs 64Gi, at most 63.9Gi free); 2 were unschedulable. It helps if pods "
        "leave there, but the preemptionPolicy of this pod is Never.",
        id="cordoned nodes are not the bottleneck",
    ),
    pytest.param(
        refused(other(3, "TaintToleration", "node(s) had untolerated taint {gpu: only}")),
        "All 3 nodes had untolerated taint {gpu: only}. Removing pods does not help: a toleration or nodes without the "
        "taint would help.",
        id="taint",
    ),
    pytest.param(
        refused(other(4, "DeviceShare", "Insufficient gpu devices", helps=True, needs="2 GPUs")),
        "All 4 nodes lack gpu devices (needs 2 GPUs). It helps if pods leave there.",
        id="devices",
    ),
    pytest.param(
        refused(
            short(2, Shortage("cpu", 2000, 1000, 4000)),
            preemption=PreemptionDiagnosis(
                node="n-1", victims=[Victim(uid=str(n), namespace="d", name=f"low-{n}") for n in range(2)]
            ),
        ),
        "All 2 nodes lack cpu (needs 2, at most 1 free). It fits on n-1 when d/low-0 and d/low-1 have left "
        "(preemption).",
        id="preemption",
    ),
    pytest.param(
        refused(
            nodes=5,
            quota=QuotaShortage(
                quota="a", resource="cpu", limit=4000, used=3500, needs=1000, kind="runtime", above_min={"b": 2000}
            ),
        ),
        "Quota a has too little cpu: the pod needs 1, its runtime is 4, 3500m of it used. It helps if pods of a leave, "
        "or of b (2), which borrow above their min.",
        id="quota",
    ),
    pytest.param(
        refused(nodes=5, quota=QuotaShortage(quota="a", resource="cpu", limit=4000, used=4000, needs=1000, kind="max")),
        "Quota a has too little cpu: the pod needs 1, its max is 4, 4 of it used. It helps if pods of a leave or its "
        "max grows.",
        id="quota at its max",
    ),
    pytest.param(
        PodGated(
            namespace="d", name="w", message="too few", gang=GangProgress(gang="default/training", needs=3, exist=2)
        ),
        "Gang default/training: 0 of 3 placed, 2 of 3 exist: waits for 1 more pod.",
        id="gang",
    ),
    pytest.param(
        refused(nodes=5, message='0/5 nodes are available: persistentvolumeclaim "x" not found.'),
        'Persistentvolumeclaim "x" not found.',
        id="another refusal",
    ),
    pytest.param(
        DecisionAbandoned(namespace="d", name="w", attempt=3, reason="the log refused it"),
        "The log refused it",
        id="abandoned",
    ),
]


@pytest.mark.parametrize(("event", "sentence"), GOLDEN)
def test_the_sentence_names_the_bottleneck_and_what_helps(
    event: PodUnschedulable | PodGated | DecisionAbandoned, sentence: str
) -> None:
    assert pending_sentence(event) == sentence


def test_a_log_of_an_earlier_version_has_reasons_without_amounts() -> None:
    event = refused(other(3, "NodeResourcesFit", "Insufficient cpu, Too many pods", helps=True))
    assert pending_sentence(event) == "All 3 nodes lack cpu and room for more pods. It helps if pods leave there."


def test_the_condition_begins_as_kube_scheduler_writes_it_and_names_no_amount_that_changes() -> None:
    before, after = (refused(short(3, Shortage("cpu", 2000, most, 4000))) for most in (1000, 1500))
    assert condition_message(before) == (
        "0/3 nodes are available: 3 Insufficient cpu. All 3 nodes lack cpu (needs 2). It helps if pods leave there."
    )
    assert condition_message(before) == condition_message(after)


def test_a_sentence_that_adds_nothing_or_has_no_room_is_left_out() -> None:
    plain = PodGated(namespace="d", name="w", message="waits")
    assert condition_message(plain) == "waits"
    full = "x" * (MOST_MESSAGE - 5)
    assert condition_message(refused(short(1, BATCH_CPU), message=full)) == full
    assert condition_message(refused(short(1, BATCH_CPU), message="y" * 2000)) == "y" * MOST_MESSAGE


@pytest.mark.parametrize(
    ("resource", "amount", "up", "text"),
    [
        ("cpu", 1500, True, "1500m"),
        ("cpu", 4000, True, "4"),
        ("kubernetes.io/batch-cpu", 3200, True, "3200"),
        ("memory", 64 * GIB - 1, False, "63.9Gi"),
        ("memory", 64 * GIB - 1, True, "64Gi"),
        ("kubernetes.io/batch-memory", 512 << 20, True, "512Mi"),
        ("ephemeral-storage", 0, False, "0"),
        ("nvidia.com/gpu", 2, True, "2"),
    ],
)
def test_amounts_are_in_the_units_of_kubectl(resource: str, amount: int, up: bool, text: str) -> None:
    assert amount_for(resource, amount, up=up) == text


RESOURCES = ["cpu", "memory", "nvidia.com/gpu", "kubernetes.io/batch-cpu", "koordinator.sh/gpu-core"]
REASONS = ["node(s) had untolerated taint {a: b, c}", "node(s) were unschedulable", "z" * 900, "odd, reason"]


@st.composite
def failures(draw: st.DrawFn) -> NodeFailure:
    count, helps = draw(st.integers(1, 5000)), draw(st.booleans())
    if draw(st.booleans()):
        plugin = draw(st.sampled_from(["TaintToleration", "NodeUnschedulable", "Own"]))
        return other(count, plugin, draw(st.sampled_from(REASONS)), helps=helps)
    names = draw(st.lists(st.sampled_from(RESOURCES), min_size=1, unique=True))
    amounts = st.integers(0, 1 << 50)
    found = [Shortage(name, draw(amounts) + 1, draw(amounts), draw(amounts)) for name in names]
    return short(count, *found, helps=helps)


@given(found=st.lists(failures(), max_size=12), seed=st.randoms(use_true_random=False))
def test_the_sentence_is_short_and_no_order_of_nodes_or_groups_changes_it(
    found: list[NodeFailure], seed: random.Random
) -> None:
    event = refused(*found, nodes=max(1, sum(each.count for each in found)), preemption=NONE_FOUND)
    named = [replace(each, nodes=[f"node-{number}" for number in range(20)], details=["node-3: x"]) for each in found]
    seed.shuffle(named)
    for each in named:
        seed.shuffle(each.nodes)
    other_order = replace(event, diagnosis=Diagnosis(questioned_key="d/web", failures=named, preemption=NONE_FOUND))
    sentence = pending_sentence(event)
    assert 0 < len(sentence) <= MOST_CHARACTERS
    assert pending_sentence(other_order) == sentence
    assert condition_message(other_order) == condition_message(event)
    assert len(condition_message(event)) <= MOST_MESSAGE
    assert condition_message(event).startswith(event.message[:MOST_MESSAGE])


@given(found=st.lists(failures(), min_size=1, max_size=12))
def test_the_sentence_names_only_what_the_explanation_holds(found: list[NodeFailure]) -> None:
    event = refused(*found)
    sentence = pending_sentence(event)
    held = {each.resource for failure in found for each in failure.shortages}
    named = {"GPUs" if name == "koordinator.sh/gpu-core" else name for name in held}
    absent = {"GPUs", *RESOURCES} - named
    assert not [name for name in absent if f" {name} (" in sentence or f"offers {name}" in sentence]
    lead = sentence.split()
    counts = {failure.count for failure in found}
    assert int(lead[0]) in counts if lead[0].isdigit() else sentence.startswith(("All ", "No node ", "The only node "))
