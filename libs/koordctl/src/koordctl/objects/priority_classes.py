"""The priority classes that every cluster has: four of Koordinator and two of Kubernetes.

`koord up` and `koord demo` apply them. `koord lint` assumes them.

Source:
    protocol spec, 2.1
"""

from typing import Any, Final

from koordcore.protocol.priority import installed_priority_classes

_OF_KUBERNETES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def priority_class_manifests() -> list[dict[str, Any]]:
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
