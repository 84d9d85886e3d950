"""Warn of pods that name a group of Kubernetes' own Workload API: the scheduler does not place them."""

from collections.abc import Iterator

from koordcore.protocol import keys
from koordcore.protocol.native_groups import native_group_field
from koordcore.protocol.objects import pod_from_json
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.documents.warnings.any_document import TEMPLATED, object_of


def native_gang_warnings(document: object) -> Iterator[str]:
    """Yield a sentence for the field that puts a pod, or the pods of a template, into a group of the Workload API."""
    fields = object_of(document)
    at, holder = "spec", fields
    if fields.get("kind") in TEMPLATED:
        at, holder = "spec.template.spec", object_of(object_of(fields.get("spec")).get("template"))
    elif fields.get("kind") != "Pod":
        return
    try:
        pod = pod_from_json({"metadata": holder.get("metadata") or {}, "spec": holder.get("spec") or {}})
    except (codec.DecodeError, InvalidInput):
        return  # what is wrong with the pod is for the validators to say
    if field := native_group_field(pod):
        yield (
            f"{at}.{field}: groups of the Workload API are not supported; "
            f"name the gang by the label {keys.POD_GROUP} and a PodGroup instead; the scheduler does not place the pod"
        )
