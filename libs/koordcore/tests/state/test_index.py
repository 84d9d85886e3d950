"""Indexes after any changes are the ones that a new start makes, and what is gone leaves nothing behind."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from koordcore.events.envelope import AggregateRef, Draft, Event
from koordcore.events.objects import (
    CustomObjectDeleted,
    CustomObjectObserved,
    NodeSpecAdded,
    PriorityClassObserved,
    custom_ref,
)
from koordcore.protocol.objects import KubeStruct, ObjectMeta, PriorityClass, node_from_json
from koordcore.state import ClusterState
from koordcore.state.index import (
    MOST_UNKNOWN_NODES,
    CustomObjects,
    NewestReports,
    PodIndex,
    PodKeys,
    priority_classes,
)
from koordcore.values.invalid import InvalidInput
from support.histories.recording import stored
from support.reachable import container_sizes

UIDS = ("u0", "u1", "u2")
KEYS = st.builds(
    PodKeys,
    namespace=st.just("d"),
    name=st.sampled_from(["a", "b"]),
    node=st.sampled_from(["", "n", "m"]),
    owners=st.lists(st.sampled_from(["r", "s"]), max_size=2, unique=True).map(tuple),
)


class Deployment(KubeStruct):
    replicas: int = 1


@given(st.lists(st.tuples(st.sampled_from(UIDS), st.none() | KEYS), max_size=20))
def test_pods_are_found_by_their_present_keys(changes: list[tuple[str, PodKeys | None]]) -> None:
    index, pods = PodIndex(), dict[str, PodKeys]()
    changed: list[str] = []  # uids of the pods, the one that changed last at the end
    for uid, keys in changes:
        before = pods.pop(uid, None)
        assert index.change(uid, keys) == before
        changed = [each for each in changed if each != uid]
        if keys is not None:
            pods[uid] = keys
            changed.append(uid)
    duplicates: set[str] = set()
    for name in ("a", "b"):
        named = [uid for uid in reversed(changed) if uid in pods and pods[uid].name == name]
        assert index.all_named("d", name) == named
        assert index.named("d", name) == (named[0] if named else None)
        duplicates.update(named if len(named) > 1 else [])
    assert set(index.duplicates()) == duplicates
    assert [index.node_of(uid) for uid in UIDS] == [pods[uid].node if uid in pods else "" for uid in UIDS]
    for node in ("n", "m"):
        assert set(index.on_node(node)) == {uid for uid, keys in pods.items() if keys.node == node}
    for owner in ("r", "s"):
        assert set(index.of_owner(owner)) == {uid for uid, keys in pods.items() if owner in keys.owners}
    assert set(index.owners()) == {owner for keys in pods.values() for owner in keys.owners}


def test_pods_that_are_gone_leave_nothing_behind() -> None:
    index, keys = PodIndex(), PodKeys("d", "a", "n", ("r",))
    index.change("u", keys)
    index.change("u", None)
    assert container_sizes(index) == container_sizes(PodIndex())


class Folded:
    def __init__(self) -> None:
        self.state = ClusterState()
        self.unreadable: dict[str, str] = {}
        self.customs = CustomObjects(self.state, self.unreadable)

    def tell(self, ref: AggregateRef, event: Event) -> None:
        self.state.apply(stored(self.state.position + 1, Draft(ref, event, 0)))
        if ref.kind == "customspec":
            self.customs.changed(ref.id)

    def deployment(self, name: str, replicas: Any) -> None:
        document = {"metadata": {"name": name}, "replicas": replicas}
        self.tell(custom_ref("deployments", "", name), CustomObjectObserved(object=document))

    def delete(self, name: str) -> None:
        self.tell(custom_ref("deployments", "", name), CustomObjectDeleted(kind="Deployment", namespace="", name=name))

    def replicas(self) -> list[int]:
        return [each.replicas for each in self.customs.decoded("deployments", Deployment)]


def test_an_invalid_object_is_left_out_and_named_until_it_changes() -> None:
    folded = Folded()
    folded.deployment("a", 2)
    folded.deployment("b", "many")
    assert folded.replicas() == [2]
    assert list(folded.unreadable) == ["customspec.deployments=b"]
    folded.deployment("b", 3)
    assert folded.replicas() == [2, 3]
    assert not folded.unreadable


def test_each_version_of_an_object_is_decoded_once() -> None:
    folded, read = Folded(), list[str]()

    def decode(raw: Any) -> str:
        read.append(raw["metadata"]["name"])
        if raw["replicas"] == 0:
            raise InvalidInput("above 0", 0)
        return str(raw["replicas"])

    def texts() -> list[str]:
        return list(folded.customs.decoded("deployments", str, decode))

    folded.deployment("a", 1)
    folded.deployment("b", 0)
    assert (texts(), texts()) == (["1"], ["1"])
    assert read == ["a", "b"]
    folded.deployment("b", 2)
    assert texts() == ["1", "2"]
    assert read == ["a", "b", "b"]


def test_a_version_grows_with_each_change_of_its_kind_only() -> None:
    folded = Folded()
    folded.deployment("a", 1)
    before = folded.customs.version("deployments")
    folded.tell(custom_ref("devices", "", "n"), CustomObjectObserved(object={"metadata": {"name": "n"}}))
    assert folded.customs.version("deployments") == before
    folded.delete("a")
    assert folded.customs.version("deployments") > before
    assert not list(folded.customs.ids("deployments"))
    restored = CustomObjects(folded.state, {})
    assert list(restored.ids("devices")) == list(folded.customs.ids("devices"))
    assert restored.version("devices") == folded.state.position


def test_reports_of_unknown_nodes_are_forgotten_when_there_are_too_many() -> None:
    folded, reports = Folded(), NewestReports[int]()
    folded.tell(AggregateRef("nodespec", "n"), NodeSpecAdded(object=node_from_json({"metadata": {"name": "n"}})))
    for number in range(2 * MOST_UNKNOWN_NODES):
        reports.put(f"gone-{number}", number, folded.state)
        reports.put("n", number, folded.state)
    assert len(reports.of_node) <= MOST_UNKNOWN_NODES + 2
    reports.forget_gone(folded.state)
    assert reports.of_node == {"n": 2 * MOST_UNKNOWN_NODES - 1}
    reports.forget("n")
    assert not reports.of_node


def test_priority_classes_are_found_by_name() -> None:
    folded = Folded()
    found = PriorityClass(metadata=ObjectMeta(name="high"), value=9)
    folded.tell(AggregateRef("priorityclass", "high"), PriorityClassObserved(object=found))
    assert priority_classes(folded.state) == {"high": 9}
