"""Device: the GPUs, RDMA adapters and FPGAs of a node, as its agent reports them.

Source:
    protocol spec, 9 (Device); manager spec, 5.10, 5.11
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from koordcore.protocol.objects import KubeStruct, ObjectMeta, Quantities, object_from_json
from koordcore.values import codec


class DeviceInfo(KubeStruct):
    """`spec.devices[]`."""

    type: str = ""
    health: bool = False
    resources: Quantities = {}


class DeviceSpec(KubeStruct):
    """`spec` of a Device."""

    devices: list[DeviceInfo] = []


class Device(KubeStruct):
    """scheduling.koordinator.sh/v1alpha1, named as its node."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DeviceSpec = msgspec.field(default_factory=DeviceSpec)


def device_from(raw: Mapping[str, Any] | None) -> Device | None:
    """Return the devices of a stored object; None if there is no object or it cannot be read."""
    try:
        return None if raw is None else object_from_json(raw, Device)
    except codec.DecodeError:
        return None
