"""Warn of pods that name a group of Kubernetes' own Workload API: the scheduler places them one by one."""

from collections.abc import Iterator
from typing import Final

from koordcore.protocol import keys

from koord_manager.domain.documents.warnings.any_document import TEMPLATED, object_of

_FIELDS: Final = ("schedulingGroup", "workloadRef")  # 1.36 on; 1.35


def native_gang_warnings(document: object) -> Iterator[str]:
    """Yield a sentence for each field that puts a pod, or the pods of a template, into a group of the Workload API."""
    fields = object_of(document)
    at, spec = "spec", object_of(fields.get("spec"))
    if fields.get("kind") in TEMPLATED:
        at, spec = "spec.template.spec", object_of(object_of(spec.get("template")).get("spec"))
    elif fields.get("kind") != "Pod":
        return
    for name in _FIELDS:
        if spec.get(name):
            yield (
                f"{at}.{name}: groups of the Workload API are not placed together; "
                f"use a PodGroup and the label {keys.POD_GROUP}; it is ignored"
            )
