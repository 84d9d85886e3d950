"""The effect of a hook server's answer on a request, and the effect of an update on the remembered resources.

Source: runtime spec, 5.4.
"""

from collections.abc import Iterable, Mapping

import msgspec

from koord_criproxy.domain.records import Resources

_LOWEST_OOM_SCORE, _HIGHEST_OOM_SCORE = -1000, 1000


def with_hook_response(base: Resources, response: Resources | None) -> Resources:
    """Return the resources of a request after the answer of a hook server has overridden them.

    CPU and NUMA lists are always taken from the answer, also when they are empty, because a server echoes the values
    that it does not want to change. For the same reason, an OOM score of 0 overrides, too; one outside -1000..1000 does
    not. Other amounts of 0 do not override. Files of `unified` are merged, and huge page limits stay.

    Args:
        base: Resources of the request.
        response: Resources of the answer; None for no change.
    """
    if response is None:
        return base
    changed = _amounts_over(base, response)
    is_score = _LOWEST_OOM_SCORE <= response.oom_score_adj <= _HIGHEST_OOM_SCORE
    return msgspec.structs.replace(
        changed,
        oom_score_adj=response.oom_score_adj if is_score else base.oom_score_adj,
        cpuset_cpus=response.cpuset_cpus,
        cpuset_mems=response.cpuset_mems,
    )


def with_update(cached: Resources | None, request: Resources) -> Resources:
    """Return the remembered resources of a container after an UpdateContainerResources call has overridden them.

    OOM score and huge pages stay. Amounts of 0 and empty CPU and NUMA lists have no effect.

    Args:
        cached: Remembered resources; None if there are none, then the result is `request`.
        request: Resources of the call.
    """
    if cached is None:
        return request
    return msgspec.structs.replace(
        _amounts_over(cached, request),
        cpuset_cpus=request.cpuset_cpus or cached.cpuset_cpus,
        cpuset_mems=request.cpuset_mems or cached.cpuset_mems,
    )


def _amounts_over(base: Resources, change: Resources) -> Resources:
    """Return `base` with those amounts of `change` that are set. 0 is not set; -1 is set, as an unlimited quota."""

    def positive(value: int, old: int) -> int:
        return value if value > 0 else old

    return msgspec.structs.replace(
        base,
        cpu_period=positive(change.cpu_period, base.cpu_period),
        cpu_quota=change.cpu_quota or base.cpu_quota,
        cpu_shares=positive(change.cpu_shares, base.cpu_shares),
        memory_limit_in_bytes=positive(change.memory_limit_in_bytes, base.memory_limit_in_bytes),
        memory_swap_limit_in_bytes=positive(change.memory_swap_limit_in_bytes, base.memory_swap_limit_in_bytes),
        unified={**base.unified, **change.unified},
    )


def readable_envs(envs: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Return the environment variables that hook servers get: name -> value, for values that are UTF-8.

    If a variable occurs several times, the last one counts.
    """
    found: dict[str, str] = {}
    for key, value in envs:
        text = _text(value)
        if text is not None:
            found[key] = text
    return found


def with_hook_envs(envs: Iterable[tuple[str, bytes]], response: Mapping[str, str]) -> list[tuple[str, bytes]]:
    """Return the environment of a request after the answer of a hook server, which replaces it.

    Variables of the request keep their order, and a duplicate keeps its first position. New variables follow in
    ascending order. A variable whose value is not UTF-8 was not shown to the server and stays.

    Args:
        envs: Variables of the request in order.
        response: Variables of the answer; empty for no change.
    """
    envs = list(envs)
    if not response:
        return envs
    merged: dict[str, bytes] = {}
    for key, value in envs:
        if key in response:
            merged.setdefault(key, response[key].encode())
        elif _text(value) is None:
            merged.setdefault(key, value)
    for key in sorted(response):
        merged.setdefault(key, response[key].encode())
    return list(merged.items())


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
