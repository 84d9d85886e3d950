"""Kinds of resources by their names."""


def can_be_ignored(resource: str) -> bool:
    """Return whether a configuration may exclude the resource: only if its domain is outside kubernetes.io.

    Source: scheduler-core spec, 5.2 (4)
    """
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def is_scalar(resource: str) -> bool:
    """Return whether the resource is neither cpu, memory nor ephemeral-storage.

    Scores count it only if the pod requests it.
    """
    return "/" in resource or resource.startswith(("hugepages-", "attachable-volumes-"))
