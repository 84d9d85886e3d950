"""The priority classes that every cluster has: Koordinator's four, installed with the system, and Kubernetes' own two.

`koord up` and `koord demo` apply them, `koord lint` reckons with them: a pod that names one is taken at every door.

source    protocol spec, 2.1
"""

from typing import Any, Final

from koordcore.protocol.priority import installed_priority_classes

_OF_KUBERNETES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def priority_class_manifests() -> list[dict[str, Any]]:
    """Their manifests."""
    installed = {each.metadata.name: each.value for each in installed_priority_classes()}
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        for name, value in {**installed, **_OF_KUBERNETES}.items()
    ]
