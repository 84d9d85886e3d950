"""The fields of a DeschedulerPolicy. As in the Kubernetes descheduler, an unknown field is an error at any depth.

The arguments of plugins are checked after the conversion, by `validation.unknown_arguments`.

Source:
    reality.md, 5.4; kubernetes-sigs/descheduler, pkg/api/v1alpha1 and v1alpha2, pkg/descheduler/scheme (strict codecs)
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

from koordcore.protocol.component_config import UNKNOWN_FIELD
from koordcore.values.invalid import InvalidInput, joined

V1ALPHA1: Final = "descheduler/v1alpha1"
V1ALPHA2: Final = "descheduler/v1alpha2"
_EVERY: Final = "*"
"""Stands for any key of an object."""

Shape: TypeAlias = "dict[str, Shape] | list[Shape] | None"
"""Object with these keys, list of such items, or any value."""

_SELECTOR: Final[Shape] = {"matchLabels": None, "matchExpressions": [{"key": None, "operator": None, "values": None}]}
_POINTS: Final = ("presort", "sort", "deschedule", "balance", "filter", "preevictionfilter", "preEvictionFilter")
_SHAPES: Final[Mapping[str, Shape]] = {
    V1ALPHA2: {
        **dict.fromkeys(
            (
                "apiVersion",
                "kind",
                "nodeSelector",
                "maxNoOfPodsToEvictPerNode",
                "maxNoOfPodsToEvictPerNamespace",
                "maxNoOfPodsToEvictTotal",
                "evictionFailureEventNotification",
                "gracePeriodSeconds",
                "metricsCollector",
                "metricsProviders",
            )
        ),
        "profiles": [
            {
                "name": None,
                "pluginConfig": [{"name": None, "args": None}],
                "plugins": {point: {"enabled": None, "disabled": None} for point in _POINTS},
            }
        ],
    },
    V1ALPHA1: {
        **dict.fromkeys(
            (
                "apiVersion",
                "kind",
                "nodeSelector",
                "evictLocalStoragePods",
                "evictSystemCriticalPods",
                "evictFailedBarePods",
                "ignorePvcPods",
                "maxNoOfPodsToEvictPerNode",
                "maxNoOfPodsToEvictPerNamespace",
            )
        ),
        "strategies": {
            _EVERY: {
                "enabled": None,
                "weight": None,
                "params": {
                    **dict.fromkeys(
                        (
                            "nodeAffinityType",
                            "includeSoftConstraints",
                            "thresholdPriority",
                            "thresholdPriorityClassName",
                            "nodeFit",
                            "includePreferNoSchedule",
                            "excludedTaints",
                        )
                    ),
                    "nodeResourceUtilizationThresholds": dict.fromkeys(
                        ("useDeviationThresholds", "thresholds", "targetThresholds", "numberOfNodes")
                    ),
                    "podsHavingTooManyRestarts": dict.fromkeys(("podRestartThreshold", "includingInitContainers")),
                    "podLifeTime": dict.fromkeys(("maxPodLifeTimeSeconds", "podStatusPhases", "states")),
                    "removeDuplicates": {"excludeOwnerKinds": None},
                    "failedPods": dict.fromkeys(
                        ("excludeOwnerKinds", "minPodLifetimeSeconds", "reasons", "includingInitContainers")
                    ),
                    "namespaces": {"include": None, "exclude": None},
                    "labelSelector": _SELECTOR,
                },
            }
        },
    },
}


def policy_problems(policy: Mapping[str, Any]) -> Iterator[InvalidInput]:
    """Yield an error for each unknown field of a policy, and for each plugin with two entries of arguments.

    The Kubernetes descheduler uses the first of two entries and does not tell. Values of a wrong type are left to
    `policies.converted`.
    """
    version = policy.get("apiVersion")
    if version == V1ALPHA2 and "strategies" in policy:
        yield InvalidInput(f"absent, because strategies belong to {V1ALPHA1}", V1ALPHA2, "strategies")
        policy = {name: value for name, value in policy.items() if name != "strategies"}
    yield from _unknown(policy, _SHAPES[str(version)], ())
    if version == V1ALPHA2:
        yield from _repeated(policy)


def _unknown(value: object, shape: Shape, path: tuple[str | int, ...]) -> Iterator[InvalidInput]:
    if isinstance(shape, list) and isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            yield from _unknown(item, shape[0], (*path, index))
    elif isinstance(shape, dict) and isinstance(value, dict):
        for key, item in cast("dict[str, object]", value).items():
            if key not in shape and _EVERY not in shape:
                yield InvalidInput(UNKNOWN_FIELD, key, joined("", (*path, key)))
            else:
                yield from _unknown(item, shape.get(key, shape.get(_EVERY)), (*path, key))


def _repeated(policy: Mapping[str, Any]) -> Iterator[InvalidInput]:
    profiles: object = policy.get("profiles")
    for index, profile in enumerate(cast("list[object]", profiles) if isinstance(profiles, list) else ()):
        entries: object = cast("dict[str, object]", profile).get("pluginConfig") if isinstance(profile, dict) else None
        if not isinstance(entries, list):
            continue
        names = [
            cast("dict[str, object]", entry).get("name") if isinstance(entry, dict) else None
            for entry in cast("list[object]", entries)
        ]
        counts = Counter(name for name in names if isinstance(name, str))
        for place, name in enumerate(names):
            if isinstance(name, str) and counts[name] > 1:
                where = f"profiles[{index}].pluginConfig[{place}].name"
                yield InvalidInput("a plugin that has one entry", name, where)
