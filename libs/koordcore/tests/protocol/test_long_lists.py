"""Long lists of a manifest are checked in a time that grows with their length: no entry is compared with all others."""

from collections.abc import Callable
from typing import ClassVar

import pytest
from koordcore.protocol import objects as kube
from koordcore.protocol.manifests import check_update
from koordcore.protocol.manifests.rules import check

ENTRIES = 500
MOST_COMPARISONS = 10 * ENTRIES


class Compared(str):
    """A text that counts how often it is compared with another one."""

    __slots__ = ()
    times: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


def texts(begin: str) -> list[str]:
    return [Compared(f"{begin}{number}") for number in range(ENTRIES)]


def gated() -> kube.PodSpec:
    return kube.PodSpec(scheduling_gates=[kube.SchedulingGate(name=name) for name in texts("gate")])


def tolerant() -> kube.PodSpec:
    return kube.PodSpec(tolerations=[kube.Toleration(key=key) for key in texts("key")])


def near() -> kube.PodSpec:
    selector = kube.LabelSelector(match_labels={"app": "a"})
    term = kube.PodAffinityTerm(
        topology_key="zone",
        label_selector=selector,
        match_label_keys=texts("key"),
        mismatch_label_keys=texts("other"),
    )
    required = kube.PodAffinity(required=[term])
    return kube.PodSpec(affinity=kube.Affinity(pod_affinity=required))


def of(spec: kube.PodSpec) -> kube.Pod:
    labels = {f"{begin}{number}": "x" for begin in ("key", "other") for number in range(ENTRIES)}
    return kube.Pod(metadata=kube.ObjectMeta(name="p", labels=labels), spec=spec)


@pytest.mark.parametrize("make", [gated, tolerant, near])
def test_a_new_pod(make: Callable[[], kube.PodSpec]) -> None:
    pod = of(make())
    Compared.times = 0
    check("Pod", pod)
    assert Compared.times <= MOST_COMPARISONS


@pytest.mark.parametrize("make", [gated, tolerant])
def test_a_changed_pod(make: Callable[[], kube.PodSpec]) -> None:
    old, new = make(), make()
    Compared.times = 0
    check_update(new, old)
    assert Compared.times <= MOST_COMPARISONS
