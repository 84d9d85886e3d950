"""Pods in operating mode Reservation: a running pod whose resources another pod may use, once.

Source: scheduler-fine-grained spec, 3.12.
"""

from typing import Final

from koordcore.protocol import keys, lenient_json
from koordcore.protocol.objects import Pod, PodTemplate
from koordcore.protocol.reservations.document import Reservation, ReservationOwnerRule, ReservationSpec
from koordcore.values.invalid import InvalidInput

_MODE: Final = "Reservation"
_POLICY: Final = "Aligned"


def is_operating(pod: Pod) -> bool:
    """Return whether the pod's label `scheduling.koordinator.sh/operating-mode` is `Reservation`."""
    return pod.metadata.labels.get(keys.OPERATING_MODE) == _MODE


def reservation_of_pod(pod: Pod) -> Reservation | None:
    """Return the Reservation that a pod in operating mode Reservation acts as.

    Its owners are those of the annotation `scheduling.koordinator.sh/reservation-owners`. Only one pod may use it.

    Args:
        pod: The pod.

    Returns:
        None if the pod has another operating mode, does not run, is not ready, is being deleted, or has an invalid
        annotation.
    """
    meta, status = pod.metadata, pod.status
    is_ready = any(each.type == "Ready" and each.status == "True" for each in status.conditions)
    if not is_operating(pod) or status.phase != "Running" or not is_ready or meta.deletion_timestamp is not None:
        return None
    text = meta.annotations.get(keys.RESERVATION_OWNERS, "")
    try:
        owners = lenient_json.decode(text, list[ReservationOwnerRule]) if text else []
    except InvalidInput:
        return None
    template = PodTemplate(metadata=meta, spec=pod.spec)
    spec = ReservationSpec(template=template, owners=owners, allocate_once=True, allocate_policy=_POLICY)
    return Reservation(metadata=meta, spec=spec)
