"""The orders in which pods leave: Koordinator's give-up order, and the order of the upstream plugins."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from koordcore.protocol import keys
from koordcore.protocol.priority import PriorityBand
from koordcore.protocol.qos import KubeQos, QosClass

from koord_descheduler.domain.view.pods import PodView

_BANDS: Final = {PriorityBand.FREE: 0, PriorityBand.BATCH: 1, PriorityBand.MID: 2, PriorityBand.PROD: 3}
_KUBE_QOS: Final[dict[str, int]] = {KubeQos.BEST_EFFORT: 0, KubeQos.BURSTABLE: 1, KubeQos.GUARANTEED: 2}
_QOS: Final = {QosClass.BE: 0, QosClass.LS: 1, QosClass.LSR: 2, QosClass.LSE: 3, QosClass.SYSTEM: 3}


def give_up_order(pods: Iterable[PodView], extra: Callable[[PodView], Any] | None = None) -> list[PodView]:
    """Return pods in the order in which they are given up: the first one leaves first.

    The keys in turn, lower first: priority class, priority value, QoS class of Kubernetes, QoS class, deletion cost,
    eviction cost, `extra`; the younger pod first. Equal pods keep their order.

    Args:
        pods: The pods.
        extra: Further sort key of the caller, such as the usage; lower first. None: there is none.

    Source:
        descheduler spec, 1.5
    """
    if extra is None:
        return sorted(pods, key=lambda pod: (*_rank(pod), -pod.created))
    return sorted(pods, key=lambda pod: (*_rank(pod), extra(pod), -pod.created))


def _rank(pod: PodView) -> tuple[int, int, int, int, int, int]:
    return (
        _BANDS[pod.band],
        pod.priority or 0,
        _KUBE_QOS.get(pod.kube_qos, 0),
        _QOS[pod.qos],
        pod.deletion_cost,
        pod.eviction_cost,
    )


def upstream_order(pods: Iterable[PodView]) -> list[PodView]:
    """Return pods from low to high priority.

    The keys in turn: pods without priority first, then by its value; QoS class of Kubernetes; pods that do not prefer
    to stay first. Equal pods keep their order.

    Source:
        descheduler spec, 1.6
    """
    return sorted(pods, key=_upstream_rank)


def _upstream_rank(pod: PodView) -> tuple[bool, int, int, bool]:
    priority = pod.priority
    return (
        priority is not None,
        priority or 0,
        _KUBE_QOS.get(pod.kube_qos, 0),
        keys.PREFER_NO_EVICTION in pod.annotations,
    )
