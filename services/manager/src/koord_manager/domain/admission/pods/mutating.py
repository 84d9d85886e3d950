"""Webhook `/mutate-pod`: run the steps that may change a new pod.

Source:
    manager spec, 8, 9, 15.7
"""

from koord_manager.domain.admission.colocation.colocation_profile import TRANSLATION, mutate_by_profiles, pod_namespace
from koord_manager.domain.admission.context.facts import Facts
from koord_manager.domain.admission.options import Draw, Options
from koord_manager.domain.admission.pods import device_resource_spec, extended_resource_spec, multi_quota_tree
from koord_manager.domain.admission.pods.pod_copy import editable
from koord_manager.domain.admission.request import JsonObject, Operation


def mutate_pod(
    operation: Operation, pod: JsonObject, namespace: str, facts: Facts, options: Options, draw: Draw
) -> tuple[JsonObject, list[str]]:
    """Return the pod after all steps, and the names of the steps that changed it.

    If no step changed the pod, the submitted pod itself is returned. No step runs on UPDATE.

    Args:
        operation: What the request does with the pod.
        pod: The submitted pod, not changed.
        namespace: Namespace of the request, for a pod without one.
        facts: Cluster state that admission reads.
        options: Feature gates and flags.
        draw: Random numbers for profiles with a probability.

    Raises:
        InvalidInput: A step failed, for example because a quantity is invalid.

    Source:
        manager spec, 9
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
    if not options.enabled("DisableExtendedResourceSpec") and extended_resource_spec.record_extended_resources(mutated):
        steps.append(extended_resource_spec.STEP)
    if options.enabled("MultiQuotaTree") and multi_quota_tree.add_tree_affinity(mutated, namespace, facts):
        steps.append(multi_quota_tree.STEP)
    if not options.enabled("DisableDeviceResourceSpec") and device_resource_spec.normalize_devices(mutated):
        steps.append(device_resource_spec.STEP)
    return (mutated, steps) if steps else (pod, steps)
