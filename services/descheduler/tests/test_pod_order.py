"""Pods stay in order whatever comes, changes and leaves."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koord_descheduler.domain.view.orders import BLOCK, PodOrder
from koord_descheduler.domain.view.pods import PodView
from support.descheduler.views import pod_view_from_json

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
        for uid, wanted in batch.items():
            before = pods.pop(uid, None)
            after = None if wanted is None else made(uid, *wanted)
            order.change(before, after)
            if after is not None:
                pods[uid] = after
        assert [id(pod) for pod in order.pods()] == [id(pod) for pod in in_order(pods.values())]
        assert {each for each in "abc" if order.has_namespace(each)} == {pod.namespace for pod in pods.values()}


def in_order(pods: Iterable[PodView]) -> list[PodView]:
    return sorted(pods, key=lambda each: (each.namespace, each.name, each.uid))


@pytest.mark.parametrize("seed", range(3))
def test_many_pods_come_and_go_in_order(seed: int) -> None:
    rng = random.Random(seed)
    pods = [made(number, f"n{number % 7}", f"p{rng.randrange(3000)}", "x") for number in range(5 * BLOCK)]
    order = PodOrder()
    for pod in pods:
        order.change(None, pod)
    assert list(order.pods()) == in_order(pods)
    assert [number for number in range(9) if order.has_namespace(f"n{number}")] == list(range(7))
    rng.shuffle(pods)
    for pod in pods[10:]:
        order.change(pod, None)
    assert list(order.pods()) == in_order(pods[:10])
