"""Objects that only placement reads (owners of pods, Services, storage objects): their fields that enter the log."""

from collections.abc import Mapping
from typing import Any, Final

from koordcore.protocol import storage
from koordcore.protocol.objects import KubeStruct, object_from_json
from koordcore.values import codec

Json = dict[str, Any]

_SPEC: Final = ("replicas", "parallelism", "selector", "clusterIP")
"""Fields of the spec of owners and Services that placement reads."""
_STORAGE: Final[Mapping[str, type[KubeStruct]]] = {
    "persistentvolumeclaims": storage.PersistentVolumeClaim,
    "persistentvolumes": storage.PersistentVolume,
    "storageclasses": storage.StorageClass,
    "csinodes": storage.CsiNode,
    "volumeattachments": storage.VolumeAttachment,
    "csidrivers": storage.CsiDriver,
    "csistoragecapacities": storage.CsiStorageCapacity,
}
"""Plural name of a kind -> its shape, which contains exactly the fields that placement reads."""


def trimmed_part(plural: str, found: Json) -> Json:
    """Return the part of an object, besides its metadata, that enters the log.

    Args:
        plural: Plural name of its kind.
        found: The object as the API server has it.

    Raises:
        DecodeError: The spec, or a field of a storage object, has a wrong type.
    """
    shape = _STORAGE.get(plural)
    if shape is None:
        spec = codec.convert(found.get("spec") or {}, Json)
        return {"spec": {key: spec[key] for key in _SPEC if key in spec}}
    kept: Json = codec.to_builtins(object_from_json(found, shape))
    kept.pop("metadata", None)
    return kept


def trimmed_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that enter the log: those that tell whether a claim is bound, and to what."""
    return {key: value for key, value in annotations.items() if key in storage.KEPT_ANNOTATIONS}
