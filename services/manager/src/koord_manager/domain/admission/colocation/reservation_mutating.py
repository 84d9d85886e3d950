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
    """Apply every colocation profile whose pod selector matches the labels of a new Reservation, by its probability.

    On other operations than CREATE, the Reservation is returned unchanged. The argument is never changed.

    In contrast to pods, namespace selectors and the skip annotation are ignored, and resources are not translated.

    Returns:
        The Reservation, and the names of the steps that changed it.

    Raises:
        InvalidInput: A probability or quantity is invalid, a priority class does not exist, or a patch cannot be
            applied.

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
