"""Parts of a document that may be anything."""

from collections.abc import Mapping
from typing import Final, cast

TEMPLATED: Final = ("Deployment", "Job", "StatefulSet", "DaemonSet", "ReplicaSet")
"""Kinds with a template of pods in `spec.template`."""


def object_of(value: object) -> Mapping[str, object]:
    """Return a JSON object, empty for any other value."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
