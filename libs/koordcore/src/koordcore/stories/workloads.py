"""The pods of a workload that a user names as KIND/NAMESPACE/NAME, such as Deployment/web/shop."""

from typing import Final

from koordcore.protocol.objects import Pod
from koordcore.protocol.recommendations import Target
from koordcore.values.invalid import InvalidInput

_PARTS: Final = 3


def workload_of(text: str, field: str) -> Target:
    """Return the workload that a text names.

    Args:
        text: Kind, namespace and name, for example "Deployment/web/shop". The kind is written as in manifests.
        field: Name of the parameter, for the error.

    Raises:
        InvalidInput: The text does not have these three parts.
    """
    parts = text.split("/")
    if len(parts) != _PARTS or not all(parts):
        raise InvalidInput("KIND/NAMESPACE/NAME, such as Deployment/web/shop", text, field)
    kind, namespace, name = parts
    return Target(namespace=namespace, key=text, kind=kind, name=name)


def controls(workload: Target, pod: Pod) -> bool:
    """Return whether a workload controls a pod, directly or as the Deployment of its ReplicaSet."""
    return workload.matches(pod, (owner for owner in pod.metadata.owner_references if owner.controller))
