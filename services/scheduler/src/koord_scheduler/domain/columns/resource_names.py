"""Kinds of resources by their names."""


def can_be_ignored(resource: str) -> bool:
    """By the configuration of the fit check: if the name has a domain other than kubernetes.io. Source: scheduler-core
    spec, 5.2 (4).
    """
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def is_scalar(resource: str) -> bool:
    """Return whether a resource name has a "/" or begins with `hugepages-` or `attachable-volumes-`. So cpu, memory,
    ephemeral-storage and pods are not scalar. Scores consider a scalar resource only for pods that request it.
    """
    return "/" in resource or resource.startswith(("hugepages-", "attachable-volumes-"))
