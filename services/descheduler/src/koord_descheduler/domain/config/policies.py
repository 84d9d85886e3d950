"""Convert a DeschedulerPolicy of the Kubernetes descheduler (v1alpha1, v1alpha2) into a DeschedulerConfiguration.

The result keeps the behaviour of the policy: its profiles filter and evict with the DefaultEvictor.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from koordcore.protocol.component_config import refuse
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.config.arguments import parse_selector_text
from koord_descheduler.domain.config.document import ALL, API_VERSION, KIND
from koord_descheduler.domain.config.policy_fields import V1ALPHA1, V1ALPHA2, policy_problems
from koord_descheduler.domain.framework.plugin import Point

DEFAULT_EVICTOR: Final = "DefaultEvictor"
POLICY: Final = "DeschedulerPolicy"
_LIMITS: Final = ("maxNoOfPodsToEvictPerNode", "maxNoOfPodsToEvictPerNamespace", "maxNoOfPodsToEvictTotal")
_EVICTOR_SWITCHES: Final = ("evictLocalStoragePods", "evictSystemCriticalPods", "evictFailedBarePods", "ignorePvcPods")
_PARAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RemoveDuplicates": ("removeDuplicates",),
    "LowNodeUtilization": ("nodeResourceUtilizationThresholds",),
    "HighNodeUtilization": ("nodeResourceUtilizationThresholds",),
    "RemovePodsViolatingInterPodAntiAffinity": (),
    "RemovePodsViolatingNodeAffinity": (),
    "RemovePodsViolatingNodeTaints": (),
    "RemovePodsViolatingTopologySpreadConstraint": (),
    "RemovePodsHavingTooManyRestarts": ("podsHavingTooManyRestarts",),
    "PodLifeTime": ("podLifeTime",),
    "RemoveFailedPods": ("failedPods",),
}
"""Strategy of v1alpha1 -> parameters whose fields become arguments of the plugin of the same name."""
_OWN_PARAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RemovePodsViolatingNodeAffinity": ("nodeAffinityType",),
    "RemovePodsViolatingNodeTaints": ("includePreferNoSchedule", "excludedTaints"),
}
POD_LIFE_TIME: Final = "PodLifeTime"
TOPOLOGY_SPREAD: Final = "RemovePodsViolatingTopologySpreadConstraint"
HIGH_UTILIZATION: Final = "HighNodeUtilization"
_UTILIZATION: Final = ("LowNodeUtilization", HIGH_UTILIZATION)
_WITHOUT_SELECTOR: Final = (*_UTILIZATION, "RemoveDuplicates")
"""Strategies whose plugins have no label selector."""
_OF_LOW_UTILIZATION: Final = ("targetThresholds", "useDeviationThresholds")
"""Thresholds of LowNodeUtilization that HighNodeUtilization ignores."""
_THRESHOLDS: Final = ("thresholdPriority", "thresholdPriorityClassName")
_BALANCE: Final = frozenset(
    {
        "RemoveDuplicates",
        "LowNodeUtilization",
        "HighNodeUtilization",
        "RemovePodsViolatingTopologySpreadConstraint",
    }
)


def converted(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return a DeschedulerConfiguration as a JSON object. Plugins of the policy and their arguments are not checked.

    Raises:
        InvalidInput: The document is not a policy, it has an unknown field or one of a wrong type, its node selector is
            invalid, it enables an unknown strategy, or it has two entries of arguments for one plugin.
    """
    if policy.get("kind") != POLICY:
        raise InvalidInput(POLICY, policy.get("kind"), "kind")
    version = policy.get("apiVersion")
    if version not in (V1ALPHA1, V1ALPHA2):
        raise InvalidInput(f"{V1ALPHA1} or {V1ALPHA2}", version, "apiVersion")
    refuse(policy_problems(policy))
    result: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    if policy.get("nodeSelector"):
        result["nodeSelector"] = _selector(_text(policy["nodeSelector"], "nodeSelector"))
    result |= {name: policy[name] for name in _LIMITS if policy.get(name) is not None}
    result["profiles"] = list(_strategies(policy) if version == V1ALPHA1 else _profiles(policy))
    return result


def left_out(policy: Mapping[str, Any]) -> list[str]:
    """Return the paths of the fields of a valid policy that have no effect on its `converted` form.

    DeschedulerConfiguration lacks them, or the Kubernetes descheduler ignores them, too.
    """
    if policy.get("apiVersion") == V1ALPHA1:
        own, nested = ("strategies", *_EVICTOR_SWITCHES), list(_unused_parameters(policy))
    else:
        own, nested = ("profiles",), list(_unused_plugin_sets(policy))
    return sorted(policy.keys() - {"apiVersion", "kind", "nodeSelector", *_LIMITS, *own}) + nested


def _unused_plugin_sets(policy: Mapping[str, Any]) -> Iterator[str]:
    for index, profile in enumerate(_list(policy.get("profiles"), "profiles")):
        plugins = _object(_object(profile, "profiles").get("plugins"), "plugins")
        for name, raw in plugins.items():
            path, plugin_set = f"profiles[{index}].plugins.{name}", _object(raw, name)
            is_served = name in (Point.DESCHEDULE.value, Point.BALANCE.value)
            enabled: list[str] = [] if is_served else _list(plugin_set.get("enabled"), name)
            if set(enabled) - {DEFAULT_EVICTOR}:
                yield f"{path}.enabled"
            if plugin_set.get("disabled"):
                yield f"{path}.disabled"


def _unused_parameters(policy: Mapping[str, Any]) -> Iterator[str]:
    for name, raw in _object(policy.get("strategies"), "strategies").items():
        strategy = _object(raw, name)
        if not strategy.get("enabled"):
            continue
        used = {*_PARAMS[name], *_OWN_PARAMS.get(name, ()), "namespaces", *_THRESHOLDS}
        used |= {"labelSelector"} if name not in _WITHOUT_SELECTOR else set()
        used |= {"nodeFit"} if name != POD_LIFE_TIME else set()
        used |= {"includeSoftConstraints"} if name == TOPOLOGY_SPREAD else set()
        given: Mapping[str, Any] = _object(strategy.get("params"), name)
        yield from (f"strategies[{name}].params.{key}" for key in sorted(given.keys() - used))
        if strategy.get("weight"):
            yield f"strategies[{name}].weight"


def _profiles(policy: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for index, raw in enumerate(_list(policy.get("profiles"), "profiles")):
        path = f"profiles[{index}]"
        profile = _object(raw, path)
        plugins = _object(profile.get("plugins"), f"{path}.plugins")
        entries = [
            _object(entry, f"{path}.pluginConfig[{place}]")
            for place, entry in enumerate(_list(profile.get("pluginConfig"), f"{path}.pluginConfig"))
        ]
        config: dict[str, Any] = {
            _text(entry.get("name"), f"{path}.pluginConfig[{place}].name"): entry.get("args") or {}
            for place, entry in enumerate(entries)
        }
        yield _profile(
            _text(profile.get("name", ""), f"{path}.name"),
            {
                point: _names(_object(plugins.get(point.value), f"{path}.plugins.{point.value}"), path)
                for point in (Point.DESCHEDULE, Point.BALANCE)
            },
            config,
        )


def _strategies(policy: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a profile per enabled strategy: node fit and priority threshold are parameters of the strategy there."""
    switches = {name: policy[name] for name in _EVICTOR_SWITCHES if policy.get(name)}
    for name, raw in _object(policy.get("strategies"), "strategies").items():
        path = f"strategies[{name}]"
        strategy = _object(raw, path)
        if not strategy.get("enabled"):
            continue
        if name not in _PARAMS:
            raise InvalidInput(f"one of {', '.join(sorted(_PARAMS))}", name, "strategies")
        params = _object(strategy.get("params"), f"{path}.params")
        evictor = dict(switches)
        if params.get("nodeFit") and name != POD_LIFE_TIME:  # the Kubernetes descheduler ignores it there
            evictor["nodeFit"] = True
        threshold = {"value": params.get("thresholdPriority"), "name": params.get("thresholdPriorityClassName")}
        if any(threshold.values()):
            evictor["priorityThreshold"] = {key: value for key, value in threshold.items() if value}
        point = Point.BALANCE if name in _BALANCE else Point.DESCHEDULE
        config = {DEFAULT_EVICTOR: evictor, name: _arguments(name, params, path)}
        yield _profile(f"strategy-{name}-profile", {point: [name]}, config)


def _arguments(name: str, params: Mapping[str, Any], path: str) -> dict[str, Any]:
    args: dict[str, Any] = {}
    for group in _PARAMS[name]:
        args |= _object(params.get(group), f"{path}.params.{group}")
    args |= {key: params[key] for key in _OWN_PARAMS.get(name, ()) if params.get(key) is not None}
    if params.get("namespaces"):
        args["evictableNamespaces" if name in _UTILIZATION else "namespaces"] = params["namespaces"]
    if params.get("labelSelector") and name not in _WITHOUT_SELECTOR:
        args["labelSelector"] = params["labelSelector"]
    if name == HIGH_UTILIZATION:
        args = {key: value for key, value in args.items() if key not in _OF_LOW_UTILIZATION}
    if name == TOPOLOGY_SPREAD and params.get("includeSoftConstraints"):
        args["constraints"] = ["DoNotSchedule", "ScheduleAnyway"]
    phases = args.pop("podStatusPhases", None)
    if phases:
        states = _list(phases, f"{path}.params.podLifeTime.podStatusPhases")
        args["states"] = [*states, *_list(args.get("states"), f"{path}.params.podLifeTime.states")]
    return args


def _profile(name: str, plugins: Mapping[Point, Sequence[str]], config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "plugins": {
            **{
                point.value: {"enabled": [{"name": each} for each in names]}
                for point, names in plugins.items()
                if names
            },
            **{
                point.value: {"disabled": [{"name": ALL}], "enabled": [{"name": DEFAULT_EVICTOR}]}
                for point in (Point.EVICT, Point.FILTER)
            },
        },
        "pluginConfig": [{"name": each, "args": args} for each, args in config.items()],
    }


def _names(plugin_set: Mapping[str, Any], path: str) -> list[str]:
    return [_text(each, f"{path}.plugins") for each in _list(plugin_set.get("enabled"), f"{path}.plugins")]


def _selector(text: str) -> dict[str, Any]:
    requirements = [
        {"key": each.key, "operator": str(each.operator), **({"values": sorted(each.values)} if each.values else {})}
        for each in parse_selector_text(text).requirements
    ]
    return {"matchExpressions": requirements}


def _object(value: object, path: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput("an object", value, path)
    return cast("dict[str, Any]", value)


def _list(value: object, path: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidInput("a list", value, path)
    return cast("list[Any]", value)


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput("text", value, path)
    return value
