"""What hooks changed in a pod is part of its story, with stage, mode, plug-in, old and new value."""

from koordcore.events import CATALOGUE
from koordcore.events.agents.hooks import ContainerHookApplied, ContainerHookFailed, HookedValue
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, StoredEvent
from koordcore.stories.pod import Step, pod_story

NODE = AggregateRef("nodestate", "node_a")


def stored(seq: int, event: Event) -> StoredEvent:
    origin = Origin(
        causation_id="c", correlation_id="u", actor="agent/node-a", occurred_at="2026-01-01T00:00:00.000000Z"
    )
    [new] = CATALOGUE.seal([Draft(NODE, event, 0)], origin)
    return StoredEvent(seq, new.ref, new.headers, new.body)


def applied(uid: str) -> ContainerHookApplied:
    value = HookedValue(name="cpuset", plugin="CPUSetAllocator", new="2-3", old="0-7")
    return ContainerHookApplied(
        uid=uid,
        namespace="d",
        pod="p",
        container="main",
        stage="PreCreateContainer",
        mode="Proxy",
        values=[value],
        reason="HAMi-core is not injected",
    )


def test_hooks_of_the_pod_are_told_and_those_of_other_pods_are_not() -> None:
    failed = ContainerHookFailed(
        uid="u",
        namespace="d",
        pod="p",
        stage="PreRunPodSandbox",
        mode="NRI",
        plugin="Resctrl",
        policy="Ignore",
        error="bad JSON",
    )
    repaired = ContainerHookApplied(
        uid="u",
        namespace="d",
        pod="p",
        container="main",
        mode="Reconciler",
        values=[HookedValue(name="cpuset", plugin="CPUSetAllocator", new="")],
    )
    story = pod_story(
        "u", [stored(1, failed), stored(2, applied("other")), stored(3, applied("u")), stored(4, repaired)], []
    )
    assert [(moment.step, moment.sentence) for moment in story] == [
        (Step.HOOK_FAILED, "pod at PreRunPodSandbox (NRI): Resctrl (policy Ignore): bad JSON"),
        (Step.HOOKED, "container main at PreCreateContainer (Proxy): cpuset 2-3; HAMi-core is not injected"),
        (Step.HOOKED, "container main by the reconciler: cpuset"),
    ]
