"""Bandwidths of QoS classes and pods, for both ways of network QoS: Terway's files and the classes of tc.

Bandwidths are in bits per second in the NodeSLO and in annotations, and in bytes per second everywhere else.

Source: runtime spec, 3.10, 3.11.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec
from koordcore.protocol import keys
from koordcore.protocol.lenient_json import decode
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import quantity_from_json

BITS_PER_BYTE: Final = 8
ALL_PERCENT: Final = 100


class _Limits(msgspec.Struct, rename="camel"):
    ingress_limit: str | int | float | None = None
    egress_limit: str | int | float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBandwidth:
    """Largest bandwidth of a pod in bytes per second; 0 without a limit."""

    ingress: int = 0
    egress: int = 0


def pod_bandwidth(annotations: Mapping[str, str]) -> PodBandwidth:
    """Return the bandwidth in the annotation networkQOS of a pod.

    Raises:
        InvalidInput: The annotation is malformed.
    """
    text = annotations.get(keys.NETWORK_QOS)
    if not text:
        return PodBandwidth()
    limits = decode(text, _Limits)
    return PodBandwidth(ingress=_bytes_of_limit(limits.ingress_limit), egress=_bytes_of_limit(limits.egress_limit))


def network_policy(strategy: Mapping[str, Any]) -> str:
    """Return `policies.netQOSPolicy` of a `resourceQOSStrategy` (JSON); "" if it is absent."""
    return str(section(strategy, "policies").get("netQOSPolicy") or "")


def class_network_qos(strategy: Mapping[str, Any], of_class: str) -> Mapping[str, Any]:
    """Return the section `networkQOS` of a QoS class (such as `lsClass`) in a strategy; empty if absent or disabled."""
    found = section(section(strategy, of_class), "networkQOS")
    return found if found.get("enable") else {}


def section(parent: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object under a name in a JSON object; empty if the value is absent or not an object."""
    found = parent.get(name)
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {}


def total_bits(system_strategy: Mapping[str, Any]) -> int:
    """Return the bandwidth of the node in bits per second from a `systemStrategy` (JSON); 0 if it is absent.

    Raises:
        InvalidInput: It is malformed or negative.
    """
    total = quantity_from_json(system_strategy.get("totalNetworkBandwidth")).value()
    if total < 0:
        raise InvalidInput("a bandwidth of at least 0", total, "systemStrategy.totalNetworkBandwidth")
    return total


def _bytes_of_limit(value: str | int | float | None) -> int:
    bits = quantity_from_json(value).value()
    if bits < 0:
        raise InvalidInput("a bandwidth of at least 0", value, f"[{keys.NETWORK_QOS}]")
    return bits // BITS_PER_BYTE
