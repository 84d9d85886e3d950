"""Give a new pod more CPU while it starts, and take it back in place when it is ready.

Admission raises the CPU of the containers whose policy has a `startupBoost`, and writes the annotation `startup-boost`
with the amounts before and after. When the pod has been ready for as long as the policy says, the recommender requests
a resize to the amounts before. Until then it requests neither another resize nor an eviction of the pod.

Source: Vertical Pod Autoscaler, enhancement 7862 (CPU startup boost).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from koordcore.events.gateway import ResizedContainer
from koordcore.protocol.lenient_json import decode
from koordcore.protocol.objects import Pod
from koordcore.protocol.recommendations import STARTUP_BOOST, ContainerPolicy, ControlledValues, policy_of
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.quantity import parse_milli

READY = "Ready"


class Boosted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """CPU of one container as quantities: the raised request, and request and limit before."""

    boosted: str
    request: str
    limit: str = ""  # "" if it had none


def boost(container: dict[str, Any], policy: ContainerPolicy) -> Boosted | None:
    """Raise the CPU of a container of a new pod, in place. None if the policy has no boost, or nothing changes.

    A limit is raised in proportion if the policy controls limits. Otherwise the request is at most the limit.
    """
    wanted = policy.startup_boost.cpu if policy.startup_boost else None
    resources: dict[str, Any] = container.get("resources") or {}
    requests: dict[str, Any] = resources.get("requests") or {}
    limits: dict[str, Any] = resources.get("limits") or {}
    try:
        base = parse_milli(requests["cpu"]) if "cpu" in requests else 0
        limit = parse_milli(limits["cpu"]) if "cpu" in limits else None
    except InvalidInput:
        return None
    if wanted is None or base <= 0:
        return None
    raised, raised_limit = wanted.of(base), limit
    if limit is not None and policy.controlled_values == ControlledValues.REQUESTS_AND_LIMITS:
        raised_limit = limit * raised // base
    elif limit is not None:
        raised = min(raised, limit)
    if raised <= base:
        return None
    container["resources"] = {**resources, "requests": {**requests, "cpu": f"{raised}m"}}
    if raised_limit is not None:
        container["resources"]["limits"] = {**limits, "cpu": f"{raised_limit}m"}
    return Boosted(boosted=f"{raised}m", request=f"{base}m", limit="" if limit is None else f"{limit}m")


def boost_annotation(boosted: Mapping[str, Boosted]) -> dict[str, str]:
    """`boosted`: name of a container -> its amounts. Empty without any."""
    return {STARTUP_BOOST: codec.encode(dict(sorted(boosted.items()))).decode()} if boosted else {}


def boosted_containers(pod: Pod) -> dict[str, Boosted]:
    """The containers of a pod whose CPU is still raised. An annotation that cannot be read counts as none."""
    text = pod.metadata.annotations.get(STARTUP_BOOST)
    if not text:
        return {}
    try:
        written = decode(text, dict[str, Boosted])
        return {
            container.name: one
            for container in pod.spec.containers
            if (one := written.get(container.name)) is not None
            and parse_milli(container.resources.requests.get("cpu", "0")) == parse_milli(one.boosted)
        }
    except InvalidInput:
        return {}


def boost_is_over(
    pod: Pod, boosted: Mapping[str, Boosted], policies: Mapping[str, ContainerPolicy], now: datetime
) -> bool:
    """Whether the pod has been ready for as long as the policies of its boosted containers say, or has no policy."""
    ready = next((one for one in pod.status.conditions if one.type == READY and one.status == str(True)), None)
    if ready is None or not ready.last_transition_time:
        return False
    boosts = [boost.cpu for name in boosted if (boost := policy_of(policies, name).startup_boost) is not None]
    longest = max((cpu.duration_seconds for cpu in boosts if cpu is not None), default=0)
    return (now - datetime.fromisoformat(ready.last_transition_time)).total_seconds() >= longest


def without_boost(boosted: Mapping[str, Boosted]) -> list[ResizedContainer]:
    """The containers with the CPU that they had before."""
    return [
        ResizedContainer(name=name, requests={"cpu": one.request}, limits={"cpu": one.limit} if one.limit else {})
        for name, one in sorted(boosted.items())
    ]
