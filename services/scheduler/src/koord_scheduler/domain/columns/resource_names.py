"""Kinds of resources by their names."""


def can_be_ignored(resource: str) -> bool:
    """Has a domain outside kubernetes.io.

    Source: scheduler-core spec, 5.2 (4)
    """
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != "kubernetes.io" and not domain.endswith(".kubernetes.io")


def is_scalar(resource: str) -> bool:
    """Neither cpu, memory nor ephemeral-storage: counted by scores only for pods that request it."""
    return "/" in resource or resource.startswith(("hugepages-", "attachable-volumes-"))
