"""What hooks changed in a pod is part of its story, with stage, mode, plug-in, old and new value."""

from koordcore.events import CATALOGUE
from koordcore.events.criproxy import HookServerFailed
from koordcore.events.envelope import AggregateRef, Draft, Event, Origin, StoredEvent
from koordcore.events.nodestate import (
    ContainerHookApplied,
    ContainerHookFailed,
    ContainersOomKilled,
    HookedValue,
    OomKill,
)
from koordcore.stories.moment import Step
from koordcore.stories.pod import pod_story


def stored(seq: int, event: Event) -> StoredEvent:
    origin = Origin(
        causation_id="c", correlation_id="u", actor="agent/node-a", occurred_at="2026-01-01T00:00:00.000000Z"
    )
    ref = AggregateRef(CATALOGUE.of(type(event)).kind, "node_a")
    [new] = CATALOGUE.seal([Draft(ref, event, 0)], origin)
    return StoredEvent(seq, new.ref, new.headers, new.body)


def unanswered(uid: str) -> HookServerFailed:
    return HookServerFailed(
        uid=uid,
        namespace="d",
        pod="p",
        container="main",
        hook="PreCreateContainer",
        server="koordlet.json",
        policy="Ignore",
        error="UNAVAILABLE",
    )


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
    told = (failed, applied("other"), applied("u"), repaired, unanswered("other"), unanswered("u"))
    story = pod_story("u", [stored(seq, event) for seq, event in enumerate(told, start=1)], [])
    assert [(moment.step, moment.sentence) for moment in story] == [
        (Step.HOOK_FAILED, "pod at PreRunPodSandbox (NRI): Resctrl (policy Ignore): bad JSON"),
        (Step.HOOKED, "container main at PreCreateContainer (Proxy): cpuset 2-3; HAMi-core is not injected"),
        (Step.HOOKED, "container main by the reconciler: cpuset"),
        (
            Step.HOOK_FAILED,
            "container main at PreCreateContainer (proxy): hook server koordlet.json (policy Ignore): UNAVAILABLE",
        ),
    ]


def test_kills_for_lack_of_memory_are_in_the_story_of_their_pod() -> None:
    kill = OomKill(uid="u", namespace="d", name="p", container="main", at="2026-07-24T12:00:00Z", limit_bytes=64 << 20)
    others = [OomKill(uid="other", namespace="d", name="o", container="main", at="2026-07-24T12:00:00Z")]
    unknown = OomKill(uid="u", namespace="d", name="p", container="", at="2026-07-24T12:00:00Z", kills=3)
    told = (
        ContainersOomKilled(kills=[*others, kill]),
        ContainersOomKilled(kills=others),
        ContainersOomKilled(kills=[unknown]),
    )
    story = pod_story("u", [stored(seq, event) for seq, event in enumerate(told, start=1)], [])
    assert [(moment.step, moment.sentence) for moment in story] == [
        (Step.OOM_KILLED, "for lack of memory: container main (limit 64Mi)"),
        (Step.OOM_KILLED, "for lack of memory: the pod (without a limit, 3 kills)"),
    ]
