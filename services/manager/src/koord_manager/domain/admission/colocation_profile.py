"""Apply ClusterColocationProfiles to pods: match them, change the pod, and translate its resources.

A Reservation gets the changes of its pod template by `/mutate-reservation`.

Source:
    manager spec, 8.2, 8.3, 8.4
"""

from collections.abc import Mapping
from typing import Final

from koordcore.protocol import keys
from koordcore.protocol.objects import PriorityClass, pod_from_json
from koordcore.protocol.priority import priority_class
from koordcore.protocol.resource_names import NATIVE_TO_EXTENDED, translate_resources
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.context.facts import Facts
from koord_manager.domain.admission.context.profiles import ALWAYS, ColocationProfile
from koord_manager.domain.admission.json_object import child, copied, items, seen, text, texts
from koord_manager.domain.admission.options import Draw, Options
from koord_manager.domain.admission.request import JsonObject, Operation
from koord_manager.domain.admission.strategic_merge import strategic_merge

STEP: Final = "ClusterColocationProfile"
TRANSLATION: Final = "ResourceTranslation"


def mutate_by_profiles(
    pod: JsonObject, namespace: str, facts: Facts, options: Options, draw: Draw
) -> tuple[JsonObject, list[str]]:
    """Apply the matching profiles to a pod in order of name, then replace its cpu and memory by batch or mid resources.

    Return the pod (changed in place, unless a patch replaces it) and the names of the steps that were run: one for each
    applied profile, and one for the translation.

    Raises:
        InvalidInput: A probability or quantity is invalid, a priority class does not exist, or a patch cannot be
            applied.
    """
    # 1. matching is decided on the pod as submitted
    labels = texts(pod, "metadata", "labels")
    candidates = facts.profiles().candidates(labels)
    matching = [profile for profile in candidates if is_matching(profile, namespace, labels, facts)]
    if not matching:
        return pod, []
    # 2. to 4. apply in order of name
    steps: list[str] = []
    for profile in matching:
        if is_drawn(profile, draw):
            pod = apply_profile(pod, profile, pod_spec=child(pod, "spec"), classes=facts)
            steps.append(f"{STEP}/{profile.name}")
    # 5. translation, also when probability skipped every profile
    skips = any(profile.skips_translation for profile in matching)
    if not skips and not options.enabled("ColocationProfileSkipMutatingResources") and translate(pod):
        steps.append(TRANSLATION)
    return pod, steps


def is_matching(profile: ColocationProfile, namespace: str, labels: Mapping[str, str], facts: Facts) -> bool:
    """Return whether the selectors of a profile match the labels of namespace and pod (manager spec, 8.2 (1)).

    An invalid selector matches nothing. An unknown namespace matches only a missing or empty namespace selector.
    """
    if not profile.pods.matches(labels):
        return False
    if profile.namespaces.is_everything:
        return True
    found = facts.namespace_labels(namespace)
    return found is not None and profile.namespaces.matches(found)


def is_drawn(profile: ColocationProfile, draw: Draw) -> bool:
    """Return whether `draw` is below the percentage of the profile (manager spec, 8.2 (3)).

    Raises:
        InvalidInput: The probability of the profile is not a valid percentage.
    """
    if isinstance(profile.probability, InvalidInput):
        raise profile.probability.at(f"ClusterColocationProfile[{profile.name}]")
    if profile.probability >= ALWAYS:
        return True
    return profile.probability > 0 and draw(profile.name) < profile.probability


def apply_profile(
    target: JsonObject, profile: ColocationProfile, *, pod_spec: JsonObject | None, classes: Facts
) -> JsonObject:
    """Return the object after one profile has changed it (manager spec, 8.2 (4), 8.4).

    A profile sets labels, annotations, key mappings, label suffixes, scheduler, QoS class, priority, and at last
    applies a patch. A key mapping copies the value of the old key to the new key, or "" if the old key is missing. A
    suffix is added to a label that exists. The metadata of `target`, a pod or a Reservation, is changed in place.

    Raises:
        InvalidInput: A value of the profile is invalid.
    """
    metadata = child(target, "metadata")
    if profile.labels or profile.label_keys_mapping or profile.label_suffixes or profile.qos_class:
        child(metadata, "labels").update(profile.labels)
    if profile.annotations or profile.annotation_keys_mapping:
        child(metadata, "annotations").update(profile.annotations)
    for old, new in sorted(profile.label_keys_mapping.items()):
        labels = child(metadata, "labels")
        labels[new] = labels.get(old, "")
    for old, new in sorted(profile.annotation_keys_mapping.items()):
        annotations = child(metadata, "annotations")
        annotations[new] = annotations.get(old, "")
    for key, suffix in profile.label_suffixes.items():
        labels = child(metadata, "labels")
        if key in labels:
            labels[key] = f"{labels[key]}{suffix}"
    if profile.scheduler_name and pod_spec is not None:
        pod_spec["schedulerName"] = profile.scheduler_name
    if profile.qos_class:
        child(metadata, "labels")[keys.QOS_CLASS] = profile.qos_class
    if profile.priority_class_name:
        _set_priority(profile, pod_spec, classes.priority_class(profile.priority_class_name))
    if profile.koordinator_priority is not None:
        child(metadata, "labels")[keys.SUB_PRIORITY] = str(profile.koordinator_priority)
    if profile.patch is None:
        return target
    if isinstance(profile.patch, InvalidInput):
        raise profile.patch.at(f"ClusterColocationProfile[{profile.name}]")
    try:
        return strategic_merge(target, profile.patch)
    except InvalidInput as error:
        raise error.at(f"ClusterColocationProfile[{profile.name}].spec") from error


def _set_priority(profile: ColocationProfile, pod_spec: JsonObject | None, found: PriorityClass | None) -> None:
    if found is None:
        raise InvalidInput(
            "the name of an existing PriorityClass",
            profile.priority_class_name,
            f"ClusterColocationProfile[{profile.name}].spec.priorityClassName",
        )
    if pod_spec is None:
        return
    pod_spec["priorityClassName"] = profile.priority_class_name
    pod_spec["priority"] = found.value
    if found.preemption_policy:
        pod_spec["preemptionPolicy"] = found.preemption_policy
    else:
        pod_spec.pop("preemptionPolicy", None)


def translate(pod: JsonObject) -> bool:
    """Replace cpu and memory of a pod by batch or mid resources, in place, and return whether the pod changed.

    The priority class of the pod decides between batch and mid; the pod of another priority class stays unchanged.

    Raises:
        InvalidInput: The pod has the wrong shape, or a quantity is invalid.
    """
    try:
        mapping = NATIVE_TO_EXTENDED.get(priority_class(pod_from_json(pod)))
    except codec.DecodeError as error:
        raise InvalidInput(f"a pod ({error})", None) from error
    if mapping is None:
        return False
    spec = child(pod, "spec")
    changed = False
    for container in (*items(spec, "initContainers"), *items(spec, "containers")):
        changed |= _translate_container(seen(container, "resources"), mapping)
    return _translate_in(spec, "overhead", mapping) or changed


def _translate_container(resources: JsonObject, mapping: Mapping[str, str]) -> bool:
    changed = _translate_in(resources, "requests", mapping)
    changed |= _translate_in(resources, "limits", mapping)
    limits, requests = seen(resources, "limits"), seen(resources, "requests")
    for extended in mapping.values():
        if extended in limits and extended not in requests:
            requests = child(resources, "requests")
            requests[extended] = limits[extended]
            changed = True
    return changed


def _translate_in(holder: JsonObject, name: str, mapping: Mapping[str, str]) -> bool:
    before = seen(holder, name)
    if before.keys().isdisjoint(mapping):
        return False
    holder[name] = translate_resources(before, mapping)
    return True


def pod_namespace(pod: JsonObject, namespace: str) -> str:
    """Return the namespace of a pod, or that of the request if the pod has none."""
    return text(seen(pod, "metadata"), "namespace") or namespace


def mutate_reservation(
    operation: Operation, reservation: JsonObject, facts: Facts, draw: Draw
) -> tuple[JsonObject, list[str]]:
    """Apply the profiles whose pod selector matches the labels of a new Reservation, by their probability.

    Return the Reservation and the names of the steps that changed it. The argument is never changed. In contrast to
    pods, namespace selectors and the skip annotation are ignored, and resources are not translated.

    Raises:
        InvalidInput: A probability or quantity is invalid, a priority class does not exist, or a patch cannot be
            applied.
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
