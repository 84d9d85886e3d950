"""The gateway's pure rules: mirroring is level-triggered, answers have one meaning, writes are owed until they hold."""

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from koord_manager.domain.cluster.view import ManagerView
from koord_manager.domain.gateway.binding import (
    Later,
    Settled,
    binding_request,
    judge_binding,
    judge_look,
    outcome_draft,
    pending_binding,
)
from koord_manager.domain.gateway.eviction import (
    Evicted,
    Eviction,
    GivenUp,
    Waits,
    eviction_request,
    judge_eviction,
    judge_job,
)
from koord_manager.domain.gateway.genesis import genesis_drafts
from koord_manager.domain.gateway.mirror import Seen, cleaned, known_of, next_draft
from koord_manager.domain.gateway.node_metric import report_of
from koord_manager.domain.gateway.node_writes import pending_status
from koord_manager.domain.gateway.resources import NODES, PODS, Intake, mirrored_resources
from koord_manager.shell.gateway.reading import ResourceDecoder, WatchEnded
from koordcore.events.envelope import AggregateRef, BasedOn, name_token
from koordcore.events.gateway import PodBound, PodEvictionRequested
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, pod_on_node
from koordcore.events.nodepolicy import NodeOvercommitComputed
from koordcore.events.objects import NodeSpecAdded, PodSpecAdded, PodSpecChanged
from koordcore.events.pod import PlacementExplanation, PodPlaced, PodReleased
from koordcore.protocol import keys
from koordcore.protocol.annotations.allocation import binding_annotations
from koordcore.protocol.objects import POD_SCHEDULED, Node, ObjectMeta, Pod, PodCondition
from koordcore.protocol.pod_resources import pod_requests
from koordcore.state.aggregates import NodeLedger, NodeSpecState, PodSpecState, PodState
from koordcore.state.allocation_rules import broken_rules
from koordcore.state.reservations import reservation_of_log
from koordcore.values import codec
from koordcore.values.allocation import Allocation
from support.histories.objects import NODES as NODE_NAMES
from support.histories.objects import node, pod
from support.histories.recording import Recorder

NOW = datetime(2026, 1, 1, 0, 0, 1, 900_000, UTC)
RESOURCES = {item.plural: item for item in mirrored_resources(slo_config=("a", "b"), take_node_metrics=False)}
QUOTAS, RESERVATIONS, DEPLOYMENTS = (RESOURCES[name] for name in ("elasticquotas", "reservations", "deployments"))


class Mirror:
    """A view that a gateway keeps up to date, one fact after the other."""

    def __init__(self) -> None:
        self.log = Recorder()
        self.view = ManagerView(self.log.state)

    def see(self, seen: Seen) -> int:
        """Takes in a sighting; returns how many facts it made."""
        for count in range(10):
            draft = next_draft(self.view, seen)
            if draft is None:
                return count
            assert draft.expected_last == self.log.state.last_seq(draft.ref)
            self.log.write(draft.ref.kind, draft.ref.id, draft.event)
        raise AssertionError("it never ends")


def seen_pod(number: int, variation: int, *, gone: bool = False) -> Seen:
    found = pod(number, 100 * (variation + 1))
    found.metadata.resource_version = str(variation)
    return Seen(PODS, cleaned(PODS, found), gone)


def seen_node(number: int, variation: int, *, gone: bool = False) -> Seen:
    found = node(NODE_NAMES[number % len(NODE_NAMES)], 4)
    found.metadata.uid = f"uid-{variation}"
    return Seen(NODES, cleaned(NODES, found), gone)


def seen_quota(number: int, variation: int, *, gone: bool = False) -> Seen:
    meta: dict[str, Any] = {"name": f"q-{number}", "namespace": "default", "uid": f"u-{number}", "managedFields": [{}]}
    document: dict[str, Any] = {"metadata": meta, "spec": {"max": {"cpu": variation}}}
    return Seen(QUOTAS, cleaned(QUOTAS, document), gone)


def seen_deployment(number: int, variation: int, *, gone: bool = False) -> Seen:
    meta: dict[str, Any] = {"name": f"d-{number}", "namespace": "default", "uid": f"u-{number}"}
    document: dict[str, Any] = {"metadata": meta, "spec": {"replicas": variation}}
    return Seen(DEPLOYMENTS, cleaned(DEPLOYMENTS, document), gone)


def sighting(what: int, number: int, variation: int, gone: bool) -> Seen:
    return (seen_pod, seen_node, seen_quota, seen_deployment)[what](number, variation, gone=gone)


sightings = st.lists(
    st.builds(sighting, st.integers(0, 3), st.integers(0, 2), st.integers(0, 3), st.booleans()), max_size=30
)


@given(sightings)
def test_the_fold_says_what_was_seen_last_and_seeing_it_again_writes_nothing(seen: list[Seen]) -> None:
    mirror = Mirror()
    last: dict[AggregateRef, Seen] = {}
    ended: set[AggregateRef] = set()
    for item in seen:
        if item.ref in ended:
            continue  # a uid never comes back
        mirror.see(item)
        last[item.ref] = item
        if item.gone and item.resource is PODS:
            ended.add(item.ref)

    for item in last.values():
        assert mirror.see(item) == 0
        assert (item.ref in known_of(mirror.view, item.resource)) is not item.gone
        if not item.gone:
            assert known_of(mirror.view, item.resource)[item.ref] == item.object


@pytest.mark.parametrize(
    "plural", [name for name, item in RESOURCES.items() if item.intake in (Intake.CUSTOM, Intake.TRIMMED)]
)
def test_the_deletion_of_every_kind_can_be_read(plural: str) -> None:
    """A fact on an aggregate of another kind would halt every service."""
    resource = RESOURCES[plural]
    mirror = Mirror()
    document = cleaned(resource, {"metadata": {"name": "one", "namespace": "default", "uid": "u"}})

    assert [mirror.see(Seen(resource, document, gone)) for gone in (False, True, True)] == [1, 1, 0]
    assert known_of(mirror.view, resource) == {}


def test_a_node_with_another_uid_is_another_node() -> None:
    mirror = Mirror()

    assert [mirror.see(seen_node(0, variation)) for variation in (1, 2, 2)] == [1, 2, 0]
    state = mirror.log.state.of_kind(NodeSpecState)[name_token(NODE_NAMES[0])]
    assert state.object is not None
    assert state.object.metadata.uid == "uid-2"


def placed_pod(node_name: str = "node-a") -> Mirror:
    mirror = Mirror()
    mirror.log.write("podspec", "uid-1", PodSpecAdded(object=pod(1)))
    explanation = PlacementExplanation(nodes_considered=1, nodes_feasible=1, policy_version="t", based_on=BasedOn())
    placed = PodPlaced(
        namespace="default",
        name="pod-1",
        node=node_name,
        requests={"cpu": 100},
        attempt=1,
        queued_at="2026-01-01T00:00:00Z",
        annotations={"a": "b"},
        explanation=explanation,
    )
    mirror.log.write("pod", "uid-1", placed)
    return mirror


def test_a_binding_is_owed_until_its_outcome_is_recorded_and_again_for_the_next_placement() -> None:
    mirror = placed_pod()
    binding = pending_binding(mirror.view, "uid-1")
    assert binding is not None
    body: Any = binding_request(binding).body
    assert body["metadata"]["uid"] == "uid-1"
    assert body["metadata"]["annotations"] == {"a": "b"}

    draft = outcome_draft(mirror.view, binding, Settled("AssignedElsewhere"), NOW)
    assert draft is not None
    mirror.log.write(draft.ref.kind, draft.ref.id, draft.event)
    assert pending_binding(mirror.view, "uid-1") is None
    assert outcome_draft(mirror.view, binding, Settled(), NOW) is None
    state = mirror.log.state.of_kind(PodSpecState)["uid-1"]
    assert state.binding is not None
    assert state.binding.failure == "AssignedElsewhere"


def test_the_fact_of_a_binding_tells_what_the_api_server_has_set() -> None:
    mirror = placed_pod()
    labels = {"topology.kubernetes.io/zone": "a", "other": "b"}
    mirror.log.write(
        "nodespec", "node-a", NodeSpecAdded(object=Node(metadata=ObjectMeta(name="node-a", labels=labels)))
    )
    binding = pending_binding(mirror.view, "uid-1")
    assert binding is not None

    draft = outcome_draft(mirror.view, binding, Settled(), NOW)
    assert draft is not None
    before = mirror.log.state.of_kind(PodSpecState)["uid-1"].object
    mirror.log.write(draft.ref.kind, draft.ref.id, draft.event)

    found = codec.convert(codec.to_builtins(before), Pod)
    found.spec.node_name = "node-a"
    found.metadata.annotations["a"] = "b"
    found.metadata.labels["topology.kubernetes.io/zone"] = "a"
    found.status.conditions = [
        PodCondition(type=POD_SCHEDULED, status="True", last_transition_time="2026-01-01T00:00:01Z")
    ]
    assert mirror.see(Seen(PODS, found)) == 0
    found.status.phase = "Running"
    assert mirror.see(Seen(PODS, found)) == 1


@pytest.mark.parametrize(("seconds", "facts"), [(-1, 1), (0, 0), (1, 0), (30, 0), (31, 1)])
@pytest.mark.parametrize("others", [{}, {"changed": "meanwhile"}])
def test_a_binding_is_one_fact_if_the_api_server_made_it_up_to_thirty_seconds_before_its_answer(
    seconds: int, facts: int, others: dict[str, str]
) -> None:
    mirror = placed_pod()
    binding = pending_binding(mirror.view, "uid-1")
    assert binding is not None
    draft = outcome_draft(mirror.view, binding, Settled(), NOW)
    assert draft is not None
    mirror.log.write(draft.ref.kind, draft.ref.id, draft.event)

    found = codec.convert(codec.to_builtins(mirror.log.state.of_kind(PodSpecState)["uid-1"].object), Pod)
    at = NOW.replace(microsecond=0) - timedelta(seconds=seconds)
    found.status.conditions[0].last_transition_time = f"{at:%Y-%m-%dT%H:%M:%SZ}"
    found.metadata.labels |= others
    assert mirror.see(Seen(PODS, found)) == (1 if others else facts)


@pytest.mark.parametrize("others", [{}, {"changed": "meanwhile"}])
def test_a_pod_that_is_observed_before_its_binding_is_answered_is_recorded_as_bound(others: dict[str, str]) -> None:
    mirror = placed_pod()
    binding = pending_binding(mirror.view, "uid-1")
    assert binding is not None
    before = mirror.log.state.of_kind(PodSpecState)["uid-1"].object
    found = codec.convert(codec.to_builtins(before), Pod)
    found.spec.node_name = "node-a"
    found.metadata.annotations |= {"a": "b", **others}
    found.status.conditions = [
        PodCondition(type=POD_SCHEDULED, status="True", last_transition_time="2026-01-01T00:00:01Z")
    ]

    assert mirror.see(Seen(PODS, found)) == 1
    after = mirror.log.state.of_kind(PodSpecState)["uid-1"]
    assert after.object == found
    is_recorded = pending_binding(mirror.view, "uid-1") is None
    assert is_recorded == (not others)
    assert (outcome_draft(mirror.view, binding, Settled(), NOW) is None) == is_recorded


def test_the_fact_of_a_binding_that_was_observed_before_changes_no_object() -> None:
    mirror = placed_pod()
    binding = pending_binding(mirror.view, "uid-1")
    assert binding is not None
    found = mirror.log.state.of_kind(PodSpecState)["uid-1"].object
    found = msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, node_name="node-a"))
    mirror.see(Seen(PODS, found))

    draft = outcome_draft(mirror.view, binding, Settled(), NOW)
    assert draft is not None
    mirror.log.write(draft.ref.kind, draft.ref.id, draft.event)

    assert mirror.log.state.of_kind(PodSpecState)["uid-1"].object == found


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (201, Settled()),
        (409, Later(look=True)),
        (404, None),
        (429, Later()),
        (500, Later()),
        (503, Later()),
        (0, Later()),
        (401, Later()),
        (403, Settled("Forbidden", "m")),
        (422, Settled("Invalid", "m")),
    ],
)
def test_what_an_answer_to_a_binding_means(status: int, outcome: Settled | Later | None) -> None:
    assert judge_binding(status, "m") == outcome


@pytest.mark.parametrize("others", [{}, {"changed": "meanwhile"}])
def test_a_bound_pod_that_is_read_after_a_conflict_is_recorded_in_one_fact(others: dict[str, str]) -> None:
    mirror = placed_pod()
    binding = pending_binding(mirror.view, "uid-1")
    assert binding is not None
    found = codec.convert(codec.to_builtins(mirror.log.state.of_kind(PodSpecState)["uid-1"].object), Pod)
    found.spec.node_name = "node-a"
    found.metadata.annotations |= {"a": "b", **others}
    found.status.conditions = [
        PodCondition(type=POD_SCHEDULED, status="True", last_transition_time="2026-01-01T00:00:01Z")
    ]

    settled = judge_look(binding, 200, found)
    assert isinstance(settled, Settled)
    draft = outcome_draft(mirror.view, binding, settled, NOW)
    assert draft is not None
    assert isinstance(draft.event, PodBound)
    assert draft.event.observed == bool(others)
    mirror.log.write(draft.ref.kind, draft.ref.id, draft.event)

    assert pending_binding(mirror.view, "uid-1") is None
    assert mirror.see(Seen(PODS, found)) == len(others)


def test_what_the_pod_says_after_a_conflict() -> None:
    mirror = placed_pod()
    binding = pending_binding(mirror.view, "uid-1")
    assert binding is not None

    def looked(uid: str = "uid-1", where: str = "") -> object:
        found = pod(1)
        found.metadata.uid = uid
        found.spec.node_name = where
        return judge_look(binding, 200, found)

    assert isinstance(bound := looked(where="node-a"), Settled)
    assert bound.failure == ""
    assert isinstance(failed := looked(where="node-b"), Settled)
    assert failed.failure == "AssignedElsewhere"
    assert looked(uid="another") is None
    assert looked() == Later()
    assert judge_look(binding, 404, None) is None
    assert judge_look(binding, 503, None) == Later()


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        (201, Evicted()),
        (404, Evicted(gone=True)),
        (409, Evicted(gone=True)),
        (403, GivenUp("Forbidden", "m")),
        (429, Waits("TooManyRequests", "m")),
        (500, Waits("ServerError", "m")),
        (0, Waits("NoAnswer", "m")),
    ],
)
def test_what_an_answer_to_an_eviction_means(status: int, ended: object) -> None:
    request = PodEvictionRequested(namespace="d", name="p", initiator="agent", reason="Evicted")

    assert judge_eviction(Eviction("uid", request, "2026-01-01T00:00:00Z"), status, "m") == ended


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (403, "Forbidden"),
        (401, "Unauthorized"),
        (429, "TooManyRequests"),
        (500, "ServerError"),
        (400, "ServerError"),
        (0, "NoAnswer"),
    ],
)
def test_an_eviction_whose_job_cannot_be_read_waits_and_names_the_verb(status: int, reason: str) -> None:
    request = PodEvictionRequested(namespace="d", name="p", initiator="descheduler", reason="Descheduled", job="j")
    waits = judge_job(Eviction("uid", request, "2026-01-01T00:00:00Z"), status, b"", "m")
    assert waits == Waits(reason, "cannot get PodMigrationJob j: m")


def test_delete_options_are_passed_on_and_the_uid_always_is() -> None:
    options = {"propagationPolicy": "Orphan", "dryRun": ["All"], "preconditions": {"resourceVersion": "7"}}
    request = PodEvictionRequested(
        namespace="d", name="p", initiator="descheduler", reason="Descheduled", delete_options=options
    )
    eviction = Eviction("uid", request, "2026-01-01T00:00:00Z")
    sent = cast("dict[str, object]", eviction_request(eviction).body)
    assert sent["deleteOptions"] == {
        **options,
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "uid", "resourceVersion": "7"},
    }
    tried, refused = (judge_eviction(eviction, status, "m") for status in (201, 409))
    assert isinstance(tried, GivenUp)
    assert tried.reason == "DryRun"
    assert refused == GivenUp("Conflict", "m")


@given(st.integers(0, 10_000), st.sampled_from(["{}", "{}m", "{}k"]))
def test_a_node_that_says_the_published_amount_in_any_spelling_is_owed_nothing(amount: int, spelling: str) -> None:
    units = {"{}": amount, "{}m": -(-amount // 1000), "{}k": amount * 1000}[spelling]
    found = node("node-a")
    for field in (found.status.capacity, found.status.allocatable):
        field["kubernetes.io/batch-cpu"] = spelling.format(amount)
        field["kubernetes.io/batch-memory"] = "1Gi"
    log = Recorder()
    log.write("nodespec", "node-a", NodeSpecAdded(object=found))
    computed = NodeOvercommitComputed(
        batch_cpu_milli=units, batch_memory_bytes=1 << 30, reason="first", based_on=BasedOn()
    )
    log.write("nodepolicy", "node-a", computed)

    assert pending_status(ManagerView(log.state), "node-a") is None


def test_a_usage_that_cannot_be_read_is_absent_and_never_zero() -> None:
    broken = {"resources": {"cpu": "1C", "memory": "1Gi"}}
    status = {"updateTime": "2026-01-01T00:00:00Z", "nodeMetric": {"nodeUsage": broken}}
    report = report_of({"status": status}, lambda _, __: "")

    assert report is not None
    assert report.node_usage is None
    assert report_of({"status": {}}, lambda _, __: "") is None
    assert report_of({"status": {"podsMetric": "no"}}, lambda _, __: "") is None


@given(st.binary(max_size=200))
@example(b'{"type": "\xff"}')
@example(b'{"type": "ADDED", "object": ' + b"[" * 100_000)
def test_no_line_of_a_watch_crashes_its_reader(line: bytes) -> None:
    with contextlib.suppress(codec.DecodeError, WatchEnded):
        ResourceDecoder(PODS).line(line)


def test_a_null_counts_as_absent_and_a_wrong_type_names_the_object() -> None:
    decoder = ResourceDecoder(PODS)
    page = decoder.page(
        b'{"metadata": {"resourceVersion": "7"}, "items": ['
        b'{"metadata": {"name": "a", "uid": "1", "labels": null}, "spec": {"tolerations": null}},'
        b'{"metadata": {"name": "b", "namespace": "n", "uid": "2"}, "spec": {"priority": "high"}}]}'
    )

    assert [item.metadata.name for item in page.objects if isinstance(item, Pod)] == ["a"]
    assert page.version == "7"
    assert len(page.unreadable) == 1
    assert str(page.unreadable[0]).startswith("n/b: ")


def test_nodes_are_read_without_what_the_kubelet_repeats() -> None:
    line = (
        b'{"type": "MODIFIED", "object": {"metadata": {"name": "n", "resourceVersion": "9", "managedFields": []},'
        b'"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01"}]}}}'
    )
    change = ResourceDecoder(NODES).line(line)

    assert change.version == "9"
    assert isinstance(change.object, Node)
    assert b"lastHeartbeatTime" not in codec.encode(change.object)


def decisive(log: Recorder) -> dict[str, object]:
    state = log.state
    return {
        "pods": {uid: item.object for uid, item in state.of_kind(PodSpecState).items()},
        "nodes": {key: item.object for key, item in state.of_kind(NodeSpecState).items()},
        "placed": {
            uid: (item.node, item.requests, item.allocation, item.annotations)
            for uid, item in state.of_kind(PodState).items()
            if item.node
        },
        "held": {key: (item.pods, item.requested) for key, item in state.of_kind(NodeLedger).items() if item.pods},
    }


def bound_history(pods: list[tuple[int, str, bool, bool]]) -> Recorder:
    """Pods of some nodes as gateway and scheduler write them: placed, bound with their allocation, some finished."""
    log = Recorder()
    for name in NODE_NAMES:
        log.write("nodespec", name_token(name), NodeSpecAdded(object=node(name)))
    for number, where, is_placed, is_finished in pods:
        uid = f"uid-{number}"
        log.write("podspec", uid, PodSpecAdded(object=pod(number)))
        if not is_placed:
            continue
        allocation = Allocation(cpuset=str(number))
        explanation = PlacementExplanation(nodes_considered=3, nodes_feasible=3, policy_version="t", based_on=BasedOn())
        requests = pod_requests(pod(number))
        placed = PodPlaced(
            namespace="default",
            name=f"pod-{number}",
            node=where,
            requests=requests,
            attempt=1,
            queued_at="2026-01-01T00:00:00Z",
            allocation=allocation,
            explanation=explanation,
        )
        log.write("pod", uid, placed)
        log.write("node", name_token(where), NodeResourcesTaken(pods=[pod_on_node(uid, pod(number), allocation)]))
        found = pod(number)
        found.spec.node_name, found.status.phase = where, "Succeeded" if is_finished else "Running"
        found.metadata.annotations = binding_annotations(allocation, None, {}, {})
        log.write("podspec", uid, PodSpecChanged(object=found))
        if is_finished:
            released = PodReleased(namespace="default", name=f"pod-{number}", node=where, reason="finished")
            log.write("pod", uid, released)
            log.write("node", name_token(where), NodeResourcesReturned(pods=[uid]))
    return log


placements = st.lists(
    st.tuples(st.integers(0, 9), st.sampled_from(NODE_NAMES), st.booleans(), st.booleans()),
    unique_by=lambda item: item[0],
)


@given(placements)
def test_a_log_begun_from_the_objects_decides_as_the_one_that_led_to_them(
    pods: list[tuple[int, str, bool, bool]],
) -> None:
    log = bound_history(pods)
    seen = [Seen(NODES, item.object) for item in log.state.of_kind(NodeSpecState).values() if item.object]
    seen += [Seen(PODS, item.object) for item in log.state.of_kind(PodSpecState).values()]
    begun = Recorder()
    for draft in genesis_drafts(seen, cluster_epoch=1, now="2026-01-01T00:00:00Z"):
        assert begun.state.last_seq(draft.ref) == draft.expected_last == 0
        begun.write(draft.ref.kind, draft.ref.id, draft.event)

    assert decisive(begun) == decisive(log)


def _reservation(name: str, **status: object) -> Seen:
    container = {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    document: dict[str, Any] = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"template": {"spec": {"containers": [container]}}, "owners": [{}], "allocateOnce": False},
        "status": status,
    }
    return Seen(RESERVATIONS, document)


def _owner(number: int, reservation: str) -> Seen:
    found = pod(number)
    found.spec.node_name, found.status.phase = "node-0", "Running"
    used = codec.encode({"name": reservation, "uid": f"uid-{reservation}"}).decode()
    found.metadata.annotations = {keys.RESERVATION_ALLOCATED: used}
    return Seen(PODS, found)


def test_a_log_begins_with_the_reservations_and_counts_their_amounts_once() -> None:
    available = _reservation("a", phase="Available", nodeName="node-0", allocatable={"cpu": "3", "memory": "1Gi"})
    ended = _reservation("b", phase="Succeeded", nodeName="node-0", currentOwners=[{"uid": "uid-2"}])
    waiting = _reservation("c", phase="Pending")
    begun = Recorder()
    seen = [_owner(1, "a"), _owner(2, "b"), available, ended, waiting]
    for draft in genesis_drafts(seen, cluster_epoch=1, now="2026-01-01T00:00:00Z"):
        begun.write(draft.ref.kind, draft.ref.id, draft.event)
    found = {name: reservation_of_log(begun.state, f"uid-{name}") for name in "abc"}
    assert {name: status.phase for name, status in found.items()} == {
        "a": "Available",
        "b": "Succeeded",
        "c": "Pending",
    }
    requests = pod_requests(pod(1))
    assert found["a"].allocatable == {"cpu": 3000, "memory": 1 << 30}
    assert found["a"].taken == {name: requests[name] for name in ("cpu", "memory")}
    ledger = begun.state.of_kind(NodeLedger)["node-0"]
    assert ledger.requested["cpu"] == 3000 + requests["cpu"], "one pod uses a part of a, the other needs its own"
    assert not broken_rules(begun.state)
