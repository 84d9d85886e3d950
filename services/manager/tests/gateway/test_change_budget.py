"""What one namespace may write to the log by changes, what is told at once all the same, and that nothing is lost."""

import random
from typing import Any

import msgspec
import pytest
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.change_budget import (
    LONGEST_SECONDS,
    MINUTES_AT_ONCE,
    SMALL_BYTES,
    SOON_SECONDS,
    ChangeBudget,
)
from koord_manager.domain.gateway.mirror import LONGEST_FOREIGN, Seen, cleaned, next_draft
from koord_manager.domain.gateway.resources import NODES, PODS, mirrored_resources
from koordcore.protocol import keys
from koordcore.protocol.objects import ObjectMeta, Pod, PodCondition, SchedulingGate
from koordcore.values import codec
from support.depth import seeds
from support.histories.objects import node, pod
from support.histories.recording import Recorder

RATE = 60_000  # Bytes per minute
MOST = RATE * MINUTES_AT_ONCE
SCANTY = 6  # Bytes per minute; no fact is so small as what may be written at once
LARGE = 40_000  # Bytes of a text that makes an object large
RESOURCES = {item.plural: item for item in mirrored_resources(slo_config=("a", "b"), take_node_metrics=False)}


class Mirror:
    """A log to which observed objects are written as far as the budget admits them."""

    def __init__(self, bytes_per_minute: int = RATE) -> None:
        self.log = Recorder()
        self.view = ManagerView(self.log.state)
        self.budget = ChangeBudget(bytes_per_minute)
        self.now = 1_000.0
        self.bytes = 0

    def see(self, *seen: Seen) -> int:
        """Take in observations, and return how many facts they made."""
        count = 0
        for each in seen:
            while (draft := next_draft(self.view, each)) is not None:
                if not self.budget.admits(self.view, each, draft, self.now):
                    break
                self.log.write(draft.ref.kind, draft.ref.id, draft.event)
                self.bytes += len(codec.encode(draft.event))
                count += 1
            else:
                self.budget.settle(each)
        return count

    def pass_time(self, seconds: float, step: float = 5.0) -> int:
        """Let time pass, and write what becomes due. Return the number of facts."""
        end, count = self.now + seconds, 0
        while self.now < end:
            self.now = min(self.now + step, end)
            count += self.see(*self.budget.due(self.now))
        return count

    def spend(self, number: int = 0) -> None:
        """Use up the budget of the namespace by changes of labels."""
        change = 0
        while self.see(labelled(number, f"spent-{change}", LARGE)):
            change += 1


def changed(number: int, namespace: str = "default", size: int = 0, **status: Any) -> Pod:
    found = pod(number, 100)
    found.metadata.namespace = namespace
    found.metadata.annotations = {keys.GANG_NAME: "x" * size} if size else {}
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, **status))


def of(found: Pod, *, gone: bool = False) -> Seen:
    return Seen(PODS, cleaned(PODS, found), gone)


def labelled(number: int, value: str, size: int = 0, namespace: str = "default", **status: Any) -> Seen:
    found = changed(number, namespace, size, **status)
    found.metadata.labels = {**found.metadata.labels, "label": value}
    return of(found)


def label_in_log(mirror: Mirror, number: int) -> str:
    seen = of(pod(number, 100))
    state = mirror.view.state.get(seen.ref)
    found: Any = getattr(state, "object", None)
    return found.metadata.labels.get("label", "")


def test_changes_beyond_the_budget_wait_and_only_the_newest_version_is_written() -> None:
    mirror = Mirror()
    mirror.see(of(changed(0, size=LARGE)))
    begin = mirror.bytes
    written = sum(mirror.see(labelled(0, str(change), LARGE)) for change in range(1000))
    assert MOST - 2 * LARGE < mirror.bytes - begin <= MOST
    assert 10 <= written <= 12
    assert len(mirror.budget) == 1
    assert label_in_log(mirror, 0) != "999"

    assert mirror.pass_time(60) == 1
    assert label_in_log(mirror, 0) == "999"
    assert len(mirror.budget) == 0
    assert mirror.budget.pause(mirror.now) is None


def test_one_pod_that_changes_for_an_hour_writes_no_more_than_the_budget() -> None:
    mirror = Mirror()
    mirror.see(of(changed(0, size=LARGE)))
    for change in range(3600):
        mirror.now += 1
        mirror.see(*mirror.budget.due(mirror.now), labelled(0, str(change), LARGE))
    assert mirror.bytes < MOST + 60 * RATE + 7 * LARGE


def test_other_namespaces_and_objects_without_one_do_not_wait() -> None:
    mirror = Mirror()
    mirror.see(of(changed(0, size=LARGE)), of(changed(1, "other")))
    mirror.spend()
    assert mirror.see(labelled(1, "new", namespace="other")) == 1
    for capacity in (4, 5, 6):
        assert mirror.see(Seen(NODES, cleaned(NODES, node("n", capacity)))) == 1
    assert mirror.budget.waiting_in("other") == 0


def bound(found: Pod) -> Pod:
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, node_name="n1"))


def deleted(found: Pod) -> Pod:
    meta = msgspec.structs.replace(found.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(found, metadata=meta)


@pytest.mark.parametrize(
    "version",
    [
        changed(0, size=LARGE, phase="Running"),
        changed(0, size=LARGE, phase="Succeeded"),
        bound(changed(0, size=LARGE)),
        deleted(changed(0, size=LARGE)),
        changed(0, size=LARGE, conditions=[PodCondition(type="Ready", status="True")]),
    ],
)
def test_what_happens_to_a_pod_is_told_at_once_with_all_that_waited(version: Pod) -> None:
    mirror = Mirror()
    mirror.see(of(changed(0, size=LARGE)))
    mirror.spend()
    assert len(mirror.budget) == 1
    assert mirror.see(of(version)) == 1
    assert len(mirror.budget) == 0
    assert next_draft(mirror.view, of(version)) is None


def test_a_deletion_that_is_brought_forward_again_and_again_does_not_fill_the_log() -> None:
    mirror = Mirror()
    mirror.see(labelled(1, "begin", LARGE))
    mirror.spend(1)
    before = mirror.bytes
    for second in range(59, 0, -1):
        found = changed(1, size=LARGE)
        found.metadata.deletion_timestamp = f"2026-11-29T12:00:{second:02}Z"
        mirror.see(of(found))
    assert mirror.bytes - before < 3 * LARGE, "the deletion is told, and one time after it"


def test_a_gate_that_is_removed_is_told_at_once() -> None:
    def gated(*gates: str) -> Seen:
        found = changed(0, size=LARGE)
        spec = msgspec.structs.replace(found.spec, scheduling_gates=[SchedulingGate(name=name) for name in gates])
        return of(msgspec.structs.replace(found, spec=spec))

    mirror = Mirror()
    mirror.see(gated("a", "b"), of(changed(1, size=LARGE)))
    mirror.spend(1)
    assert mirror.see(gated("a")) == 1
    assert mirror.see(gated()) == 1


def test_first_observations_and_deletions_never_wait_and_a_deletion_ends_the_waiting() -> None:
    mirror = Mirror()
    mirror.see(of(changed(0, size=LARGE)))
    mirror.spend()
    assert mirror.see(of(changed(1, size=LARGE)), of(changed(2, size=LARGE))) == 2
    assert len(mirror.budget) == 1
    assert mirror.see(of(changed(0, size=LARGE), gone=True)) == 1
    assert len(mirror.budget) == 0
    assert mirror.see(of(changed(1, size=LARGE), gone=True)) == 1


def test_a_change_that_is_taken_back_does_not_wait() -> None:
    mirror = Mirror(SCANTY)
    mirror.see(of(changed(0)), of(changed(1)), labelled(1, "new"), labelled(1, "newer"))
    assert mirror.see(labelled(0, "new")) == 0
    assert len(mirror.budget) == 2
    assert mirror.see(of(changed(0))) == 0
    assert len(mirror.budget) == 1


def ready(number: int, status: str, size: int = 0) -> Seen:
    return of(changed(number, size=size, conditions=[PodCondition(type="Ready", status=status)]))


@pytest.mark.parametrize(("size", "interval"), [(0, SOON_SECONDS), (LARGE, LONGEST_SECONDS)])
def test_a_pod_that_flaps_is_told_at_intervals_beyond_the_budget(size: int, interval: float) -> None:
    mirror = Mirror(SCANTY)
    mirror.see(ready(0, "False", size), of(changed(1)))
    written = 0
    for second in range(1800):
        mirror.now += 1
        mirror.see(labelled(1, str(second)))  # takes what there is
        written += mirror.see(*[seen for seen in mirror.budget.due(mirror.now) if seen.ref == ready(0, "").ref])
        written += mirror.see(ready(0, str(bool(second % 2)), size))
    assert 1800 / interval - 1 <= written <= 1800 / interval + 1


def test_no_small_change_waits_longer_than_ten_minutes() -> None:
    mirror = Mirror(SCANTY)
    mirror.see(*(of(changed(number)) for number in range(20)))
    mirror.see(labelled(0, "old"))
    begin = mirror.now
    for number in range(20):
        mirror.see(labelled(number, "new"))
        mirror.pass_time(1)
    assert len(mirror.budget) == 20
    mirror.pass_time(begin + LONGEST_SECONDS - mirror.now - 1)
    assert len(mirror.budget) >= 18
    mirror.pass_time(25)
    assert all(label_in_log(mirror, number) == "new" for number in range(20))


def test_large_changes_that_have_waited_longest_are_written_one_a_minute() -> None:
    assert LARGE > SMALL_BYTES
    mirror = Mirror(SCANTY)
    mirror.see(*(of(changed(number, size=LARGE)) for number in range(10)))
    mirror.see(*(labelled(number, "new", LARGE) for number in range(10)))
    mirror.pass_time(LONGEST_SECONDS - 10)
    assert len(mirror.budget) >= 8
    left = len(mirror.budget)
    assert 4 <= mirror.pass_time(5 * SOON_SECONDS) <= 6
    mirror.pass_time(left * SOON_SECONDS)
    assert len(mirror.budget) == 0


@pytest.mark.parametrize("seed", seeds(20))
def test_the_log_has_the_newest_version_of_every_object_in_the_end(seed: int) -> None:
    rng, mirror = random.Random(seed), Mirror()
    newest: dict[int, Seen] = {}
    for step in range(200):
        number = rng.randrange(6)
        gone = number in newest and rng.random() < 0.05
        size = rng.choice((0, 0, LARGE, 2 * MOST))
        seen = rng.choice((labelled(number, str(step), size), ready(number, str(step), size)))
        seen = seen._replace(gone=gone)
        newest[number] = seen
        mirror.see(seen)
        assert mirror.budget.is_waiting(seen) == (next_draft(mirror.view, seen) is not None)
        mirror.pass_time(rng.choice((0, 1, 30)))
    mirror.pass_time(2 * LONGEST_SECONDS + 60 * MINUTES_AT_ONCE)
    assert len(mirror.budget) == 0
    assert all(next_draft(mirror.view, seen) is None for seen in newest.values())


def test_custom_objects_wait_too_and_their_deletion_does_not() -> None:
    def quota(variation: int, **more: Any) -> Seen:
        meta = {"name": "q", "namespace": "default", "uid": "u", **more}
        document = {"metadata": meta, "spec": {"max": {"cpu": variation}}, "status": {"note": "x" * LARGE}}
        return Seen(RESOURCES["elasticquotas"], cleaned(RESOURCES["elasticquotas"], document))

    mirror = Mirror()
    mirror.see(quota(0))
    assert sum(mirror.see(quota(variation)) for variation in range(1, 100)) < 13
    assert mirror.see(quota(100)) == 0
    assert mirror.see(quota(101, deletionTimestamp="2026-01-01T00:00:00Z")) == 1


def test_large_annotations_that_nobody_reads_are_not_mirrored() -> None:
    text = "x" * (LONGEST_FOREIGN + 1)
    read = {keys.GANG_NAME: text, "cluster-autoscaler.kubernetes.io/note": text, "node.k8s.io/note": text}
    read |= {keys.METAX_GPU_DEVICES_ALLOCATED: text}
    small = {"example.org/small": "x" * LONGEST_FOREIGN}
    foreign = {"example.org/note": text, "note": text, "kubernetes.io.example.org/note": text}
    annotations = {**read, **small, **foreign}
    found = pod(0, 100)
    found.metadata = ObjectMeta(name="p", namespace="default", uid="u", annotations=annotations)
    kept: Any = cleaned(PODS, found)
    assert kept.metadata.annotations == {**read, **small}

    document = {"metadata": {"name": "q", "namespace": "d", "uid": "u", "annotations": annotations}, "spec": {}}
    custom: Any = cleaned(RESOURCES["elasticquotas"], document)
    assert custom["metadata"]["annotations"] == {**read, **small}
    assert document["metadata"]["annotations"] == annotations, "JSON is not changed in place"
