"""Pods that change their owner, or leave their node, in the index of pods."""

from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.state.pod_index import PodIndex


def owned(*owners: str, node: str = "") -> Pod:
    references = [{"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True} for owner in owners]
    meta = {"namespace": "shop", "name": "web", "uid": "u", "ownerReferences": references}
    return pod_from_json({"metadata": meta, "spec": {"containers": [], "nodeName": node}})


def test_a_pod_that_its_controller_gave_away_is_no_longer_of_it() -> None:
    index = PodIndex()
    index.put("u", owned("a"))
    index.put("u", owned())
    assert not index.of_owner("a")
    index.put("u", owned("b"))
    assert (index.of_owner("a"), index.of_owner("b")) == (set(), {"u"})
    assert index.drop("u", "shop", "web") == ("", ("b",))
    assert not index.owners()


def test_a_node_without_pods_leaves_nothing_behind() -> None:
    index, empty = PodIndex(), vars(PodIndex())
    index.put("u", owned("a", node="n"))
    assert index.bound_on("n") == {"u"}
    index.drop("u", "shop", "web")
    assert vars(index) == empty
