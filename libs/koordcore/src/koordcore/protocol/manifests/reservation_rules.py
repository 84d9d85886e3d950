"""Validation rules of Reservations that their schema does not state: the pod template, owners, times and taints.

The schema keeps every field of the template, and accepts any text as `ttl`. An API server therefore stores Reservations
that no scheduler can place. `koord apply` and `koord lint` refuse them.

Source:
    scheduler-fine-grained spec, 3.1, 3.2, 3.4
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from koordcore.protocol.manifests import rules
from koordcore.protocol.manifests.shapes import shape_mismatch
from koordcore.protocol.objects import ObjectMeta, Pod
from koordcore.protocol.reservations.document import Reservation, ReservationOwnerRule, reservation_from_json
from koordcore.protocol.selectors import compile_selector
from koordcore.values.duration import parse_duration
from koordcore.values.invalid import InvalidInput

KIND: Final = "Reservation"


def check_reservation(document: dict[str, Any]) -> list[InvalidInput]:
    """Return every violation in a Reservation that passed its schema; empty if it is valid.

    Args:
        document: The decoded object.
    """
    try:
        reservation = reservation_from_json(document)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        return [shape_mismatch(error, document)]
    taints = rules.check_taints(reservation.spec.taints, "spec.taints")
    return [*_template(reservation), *_owners(reservation), *_ttl(reservation), *taints]


def _template(reservation: Reservation) -> Iterator[InvalidInput]:
    template = reservation.spec.template
    if template is None:
        yield InvalidInput("a pod template", None, "spec.template")
        return
    written = template.metadata
    metadata = ObjectMeta(
        name=reservation.metadata.name,
        namespace=written.namespace or "default",
        labels=written.labels,
        annotations=written.annotations,
    )
    pod = Pod(metadata=metadata, spec=template.spec)
    for fault in rules.check("Pod", pod):
        # its name is the Reservation's, and no container of it ever runs, so that an image is of no use
        if fault.path != "metadata.name" and not fault.path.endswith(".image"):
            yield fault.at("spec.template")


def _owners(reservation: Reservation) -> Iterator[InvalidInput]:
    for index, owner in enumerate(reservation.spec.owners):
        where = f"spec.owners[{index}]"
        if owner == ReservationOwnerRule():
            yield InvalidInput("at least one of object, controller and labelSelector", {}, where)
        if owner.label_selector is not None:
            try:
                compile_selector(owner.label_selector)
            except InvalidInput as error:
                yield error.at(f"{where}.labelSelector")


def _ttl(reservation: Reservation) -> Iterator[InvalidInput]:
    text = reservation.spec.ttl
    if text is None:
        return
    try:
        nanos = parse_duration(text)
    except InvalidInput as error:
        yield error.at("spec.ttl")
        return
    if nanos < 0:
        yield InvalidInput("not negative (0s: no expiry)", text, "spec.ttl")
