"""The built-in transformers of pods: deprecated resource names, and changes behind feature gates.

Source:
    scheduler-core spec, 3 (input transformers); protocol spec, 2.2 (8), 3.1
"""

from dataclasses import dataclass

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.annotations.pods import preemption_policy_or_never
from koordcore.protocol.objects import Pod
from koordcore.protocol.priority import priority_value
from koordcore.protocol.resource_names import parse_replace_resources, rename_pod, replace_pod_resources


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTransformers:
    """The changes that the scheduler makes to pods when it reads them. An attribute says whether a feature gate is on.

    Attributes:
        priority: `spec.priority` becomes the priority value of the pod: the default of its class if none is set.
        preemption_policy: `spec.preemptionPolicy` becomes what a label states, Never without the label.
        replace_resources: The annotation of a pod can remove its resources, or move their amounts to other names.
    """

    priority: bool = False
    preemption_policy: bool = False
    replace_resources: bool = False

    def transform(self, pod: Pod) -> Pod:
        """Return the pod with deprecated resource names replaced and the changes of enabled gates.

        The same object if nothing changes. The method is idempotent.

        Raises:
            InvalidInput: A request is not a valid quantity.
        """
        pod = rename_pod(pod)
        wish = pod.metadata.annotations.get(keys.REPLACE_RESOURCES) if self.replace_resources else None
        if wish:
            # The annotation goes with it: a pod that comes back from a snapshot must not be transformed again.
            kept = {key: text for key, text in pod.metadata.annotations.items() if key != keys.REPLACE_RESOURCES}
            meta = msgspec.structs.replace(pod.metadata, annotations=kept)
            pod = replace_pod_resources(msgspec.structs.replace(pod, metadata=meta), parse_replace_resources(wish))
        spec = pod.spec
        if self.priority and spec.priority != (priority := priority_value(pod)):
            spec = msgspec.structs.replace(spec, priority=priority)
        if self.preemption_policy and spec.preemption_policy != (
            policy := preemption_policy_or_never(pod.metadata.labels)
        ):
            spec = msgspec.structs.replace(spec, preemption_policy=policy)
        return pod if spec is pod.spec else msgspec.structs.replace(pod, spec=spec)
