"""Validation rules of the Kubernetes API for names, labels, annotations and metadata."""

import re
from collections.abc import Iterator, Mapping

from koordcore.protocol import objects as kube
from koordcore.values.invalid import InvalidInput

Violations = Iterator[InvalidInput]

MAX_ANNOTATIONS_BYTES = 262_144

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


def is_subdomain(text: str) -> bool:
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Return whether a text is a DNS label, as names of namespaces and containers are."""
    return len(text) <= 63 and _DNS_LABEL.fullmatch(text) is not None


def is_key(key: str) -> bool:
    """Return whether a text is a qualified name: an optional DNS prefix, and a name."""
    prefix, slash, name = key.rpartition("/")
    return (not slash or is_subdomain(prefix)) and len(name) <= 63 and _QUALIFIED_NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    return len(text) <= 63 and _LABEL_VALUE.fullmatch(text) is not None


def check_labels(labels: Mapping[str, str], path: str) -> Violations:
    for key, value in labels.items():
        if not is_key(key):
            yield InvalidInput("a label key (optional DNS prefix / name of at most 63 characters)", key, path)
        if not is_label_value(value):
            yield InvalidInput("a label value (at most 63 alphanumerics, '-', '_', '.')", value, f"{path}[{key}]")


def check_metadata(meta: kube.ObjectMeta, *, namespaced: bool) -> Violations:
    """Yield every violation of the rules for metadata. `namespaced`: whether objects of the kind have a namespace."""
    if not is_subdomain(meta.name):
        yield InvalidInput("a DNS subdomain name of at most 253 characters", meta.name, "metadata.name")
    if namespaced and not is_label(meta.namespace):
        yield InvalidInput("a DNS label of at most 63 characters", meta.namespace, "metadata.namespace")
    if not namespaced and meta.namespace:
        yield InvalidInput("absent: the kind is cluster-scoped", meta.namespace, "metadata.namespace")
    yield from check_labels(meta.labels, "metadata.labels")
    controllers = [f"{owner.kind}/{owner.name}" for owner in meta.owner_references if owner.controller]
    if len(controllers) > 1:
        yield InvalidInput("at most one with controller: true", ", ".join(controllers), "metadata.ownerReferences")
    size = 0
    for key, value in meta.annotations.items():
        size += len(key) + len(value)
        if not is_key(key.lower()):
            yield InvalidInput("an annotation key (optional DNS prefix / name)", key, "metadata.annotations")
    if size > MAX_ANNOTATIONS_BYTES:
        yield InvalidInput(f"at most {MAX_ANNOTATIONS_BYTES} characters in all", size, "metadata.annotations")
