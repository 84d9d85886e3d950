"""Webhook `/mutate-reservation`: apply colocation profiles to Reservations.

Source:
    manager spec, 8.4
"""

from koord_manager.domain.admission.colocation.colocation_profile import STEP, apply_profile, is_drawn
from koord_manager.domain.admission.context.facts import Facts
from koord_manager.domain.admission.json_object import child, copied, seen, texts
from koord_manager.domain.admission.options import Draw
from koord_manager.domain.admission.request import JsonObject, Operation


def mutate_reservation(
    operation: Operation, reservation: JsonObject, facts: Facts, draw: Draw
) -> tuple[JsonObject, list[str]]:
    """Apply every profile whose `selector` matches the labels of a Reservation, and return it with the steps.

    Namespace selectors, the skip annotation and the translation of resources are not used.

    Raises:
        InvalidInput: As for pods.

    Source:
        manager spec, 8.4
    """
    labels = texts(reservation, "metadata", "labels")
    if operation is not Operation.CREATE:
        return reservation, []
    steps: list[str] = []
    mutated = reservation
    for profile in facts.profiles().candidates(labels):
        if not profile.pods.matches(labels) or not is_drawn(profile, draw):
            continue
        if not steps:
            mutated = copied(reservation)
        template = seen(mutated, "spec", "template")
        pod_spec = child(template, "spec") if seen(template, "spec") else None
        mutated = apply_profile(mutated, profile, pod_spec=pod_spec, classes=facts)
        steps.append(f"{STEP}/{profile.name}")
    return mutated, steps
