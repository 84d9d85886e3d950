"""Webhook `/mutate-pod`: run the steps that may change a new pod.

After the colocation profiles they restrict the pods of a quota tree to the nodes of that tree, write the batch
resources to an annotation, because the container runtime does not receive them, and normalize GPU requests: `gpu`
becomes core and memory ratio, and the number of shared cards is added.

Pods of an API server are large, and the steps change a few fields. `editable` copies the parts that they may change.
The shared part is never changed, so the comparison in `json_patch` skips it.

Source:
    manager spec, 8, 9 (9.1 annotation, 9.2 quota tree, 9.3 GPUs), 15.7
"""

from typing import Any, Final, cast

from koordcore.protocol import keys
from koordcore.protocol.objects import pod_from_json
from koordcore.protocol.resource_names import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    refresh_extended_resource_spec,
)
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import quantity_from_json

from koord_manager.domain.admission.colocation_profile import TRANSLATION, mutate_by_profiles, pod_namespace
from koord_manager.domain.admission.context.facts import Facts
from koord_manager.domain.admission.json_object import child, copied, items, seen, texts
from koord_manager.domain.admission.options import Draw, Options
from koord_manager.domain.admission.request import JsonObject, Operation

TREE_STEP: Final = "MultiQuotaTree"


def add_tree_affinity(pod: JsonObject, namespace: str, facts: Facts) -> bool:
    """Add the node selector of the pod's quota tree to its required node affinity, in place; return whether it changed.

    The ElasticQuotaProfile of the tree contains the selector. No-op if the pod has no tree, or the tree no profile.

    Raises:
        InvalidInput: The pod's affinity has the wrong shape.
    """
    name = texts(pod, "metadata", "labels").get(keys.QUOTA_NAME) or namespace
    quota = facts.quotas.get(name)
    if quota is None or not quota.tree_id:
        return False
    profile = facts.quota_profile_of_tree(quota.tree_id)
    if profile is None:
        return False
    expressions = profile.expressions()
    if not expressions:
        return False
    spec = child(pod, "spec")
    spec["affinity"] = affinity = copied(child(spec, "affinity"))
    required = child(child(affinity, "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution")
    terms = items(required, "nodeSelectorTerms")
    if not terms:
        required["nodeSelectorTerms"] = [{"matchExpressions": expressions}]
        return True
    for term in terms:
        term["matchExpressions"] = [*items(term, "matchExpressions"), *(dict(found) for found in expressions)]
    return True


EXTENDED_STEP: Final = "ExtendedResourceSpec"


def record_extended_resources(pod: JsonObject) -> bool:
    """Write the batch resources of a pod's containers to an annotation, in place; return whether it changed.

    Raises:
        InvalidInput: A quantity or the present annotation is invalid.
    """
    try:
        fresh = refresh_extended_resource_spec(pod_from_json(pod))
    except codec.DecodeError as error:
        raise InvalidInput(f"a pod ({error})", None) from error
    if fresh is None:
        return False
    child(child(pod, "metadata"), "annotations")[keys.EXTENDED_RESOURCE_SPEC] = fresh
    return True


DEVICE_STEP: Final = "DeviceResourceSpec"
_GPU_NAMES: Final = frozenset((GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED))
_WHOLE_CARD: Final = 100


def normalize_devices(pod: JsonObject) -> bool:
    """Apply `normalize_gpu` to all containers of a pod, in place; return whether anything changed.

    Raises:
        InvalidInput: A quantity is not valid.
    """
    changed = False
    for index, container in enumerate(items(seen(pod, "spec"), "containers")):
        try:
            if not _GPU_NAMES.isdisjoint(seen(container, "resources", "requests")):
                changed |= normalize_gpu(child(container, "resources"))
        except InvalidInput as error:
            raise error.at(f"spec.containers[{index}]") from error
    return changed


def normalize_gpu(resources: JsonObject) -> bool:
    """Replace the GPU requests of one container by core, memory ratio and number of cards, in place.

    Return whether anything changed. `resources` is the field of the container. Limits get the same values. `gpu.shared`
    is the number of cards: the memory ratio (otherwise the core) divided by 100 if it is a multiple of 100 above 100,
    else 1.

    Raises:
        InvalidInput: A malformed quantity.

    Source: manager spec, 9.3; vectors manager/device_resource_spec.
    """
    requests = seen(resources, "requests")
    if _GPU_NAMES.isdisjoint(requests):
        return False
    wanted = (requests, child(resources, "limits"))
    changed = False
    if GPU in requests:
        amount = requests[GPU]
        for listed in wanted:
            listed.pop(GPU, None)
            listed[GPU_CORE] = amount
            listed[GPU_MEMORY_RATIO] = amount
        changed = True
    if GPU_SHARED not in requests:
        shared = str(_cards(requests))
        for listed in wanted:
            listed[GPU_SHARED] = shared
        changed = True
    return changed


def _cards(requests: JsonObject) -> int:
    percent = quantity_from_json(requests.get(GPU_MEMORY_RATIO, requests.get(GPU_CORE))).value()
    return percent // _WHOLE_CARD if percent > _WHOLE_CARD and percent % _WHOLE_CARD == 0 else 1


_CONTAINERS: Final = ("initContainers", "containers")


def editable(pod: JsonObject) -> JsonObject:
    """Return a pod whose metadata, labels, annotations, spec, containers and their resources are copies.

    All other parts are shared with the argument. A value of the wrong shape is shared too, because the steps deny it
    before they change it.
    """
    mine = dict(pod)
    metadata, spec = pod.get("metadata"), pod.get("spec")
    if isinstance(metadata, dict):
        mine["metadata"] = _with_own(cast("JsonObject", metadata), ("labels", "annotations"))
    if isinstance(spec, dict):
        mine["spec"] = own = dict(cast("JsonObject", spec))
        for name in _CONTAINERS:
            containers = own.get(name)
            if isinstance(containers, list):
                own[name] = [_editable_container(container) for container in cast("list[Any]", containers)]
    return mine


def _editable_container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    mine = dict(cast("JsonObject", container))
    resources = mine.get("resources")
    if isinstance(resources, dict):
        mine["resources"] = _with_own(cast("JsonObject", resources), ("requests", "limits"))
    return mine


def _with_own(holder: JsonObject, names: tuple[str, ...]) -> JsonObject:
    mine = dict(holder)
    for name in names:
        found = mine.get(name)
        if isinstance(found, dict):
            mine[name] = dict(cast("JsonObject", found))
    return mine


def mutate_pod(
    operation: Operation, pod: JsonObject, namespace: str, facts: Facts, options: Options, draw: Draw
) -> tuple[JsonObject, list[str]]:
    """Return the pod after all steps, and the names of the steps that changed it.

    If no step changed the pod, the submitted pod itself is returned. No step runs on UPDATE.

    Raises:
        InvalidInput: A step failed, for example because a quantity is invalid.
    """
    if operation is not Operation.CREATE:
        return pod, []
    namespace = pod_namespace(pod, namespace)
    mutated, steps = mutate_by_profiles(editable(pod), namespace, facts, options, draw)
    # only prod pods, which no profile translates: what is recommended is in native cpu and memory
    if facts.recommend is not None and TRANSLATION not in steps:
        recommended = facts.recommend(mutated, namespace)
        if recommended is not None:
            steps.append(f"Recommendation/{recommended}")
    if not options.enabled("DisableExtendedResourceSpec") and record_extended_resources(mutated):
        steps.append(EXTENDED_STEP)
    if options.enabled("MultiQuotaTree") and add_tree_affinity(mutated, namespace, facts):
        steps.append(TREE_STEP)
    if not options.enabled("DisableDeviceResourceSpec") and normalize_devices(mutated):
        steps.append(DEVICE_STEP)
    return (mutated, steps) if steps else (pod, steps)
