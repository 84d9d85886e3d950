"""Pods stay in order whatever comes, changes and leaves."""

from hypothesis import given
from hypothesis import strategies as st
from koord_descheduler.domain.view.pod_order import PodOrder
from koord_descheduler.domain.view.pods import PodView, pod_view_from_json

NAMES = st.sampled_from(["a", "b", "c"])
CHANGES = st.lists(
    st.dictionaries(st.integers(0, 5), st.none() | st.tuples(NAMES, NAMES, NAMES), max_size=4), max_size=8
)


def made(uid: int, namespace: str, name: str, node: str) -> PodView:
    return pod_view_from_json(
        {"metadata": {"namespace": namespace, "name": name, "uid": f"u{uid}"}, "spec": {"nodeName": node}}
    )


@given(CHANGES)
def test_order_is_that_of_sorting_all_pods(batches: list[dict[int, tuple[str, str, str] | None]]) -> None:
    order, pods = PodOrder(), dict[int, PodView]()
    for batch in batches:
        changes: list[tuple[PodView | None, PodView | None]] = []
        for uid, wanted in batch.items():
            before = pods.pop(uid, None)
            after = None if wanted is None else made(uid, *wanted)
            changes.append((before, after))
            if after is not None:
                pods[uid] = after
        order.change(changes)
        found = order.pods()
        assert [id(pod) for pod in found] == [
            id(pod) for pod in sorted(pods.values(), key=lambda each: (each.namespace, each.name, each.uid))
        ]


def test_many_changes_at_once_give_the_same_order() -> None:
    pods = [made(number, f"n{number % 7}", f"p{number * 31 % 3000}", "x") for number in range(3000)]
    at_once, one_by_one = PodOrder(), PodOrder()
    at_once.change([(None, pod) for pod in pods])
    for pod in pods:
        one_by_one.change([(None, pod)])
    at_once.change([(pod, None) for pod in pods[:2500]])
    one_by_one.change([(pod, None) for pod in pods[:1000]])
    one_by_one.change([(pod, None) for pod in pods[1000:2500]])
    assert at_once.pods() == one_by_one.pods()
    assert len(at_once.pods()) == 500
