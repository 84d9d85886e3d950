"""Checks of an effective configuration: its values, whether its profiles can be built, and settings without effect.

Source:
    descheduler spec, 3.3
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from koordcore.protocol.component_config import (
    UNKNOWN_FIELD,
    Ignored,
    InvalidConfiguration,
    fields_without_effect,
    read,
)
from koordcore.protocol.objects import without_nulls
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.config.arguments import PREFERRED, REQUIRED, check_selector
from koord_descheduler.domain.config.document import ALL, DeschedulerConfiguration, ProfileConfiguration
from koord_descheduler.domain.config.effective import DEFAULT_PLUGINS, profile_args, without_type
from koord_descheduler.domain.framework.plugin import Point
from koord_descheduler.domain.framework.registry import Registry

_ADDRESS: Final = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>[0-9]{0,9})")
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?)*")
_HIGHEST_PORT: Final = 65535
MIGRATION_CONTROLLER: Final = "MigrationController"


def value_problems(configuration: DeschedulerConfiguration, registry: Registry) -> Iterator[InvalidInput]:
    """Check all values, before any plugin is made (stage validation).

    The arguments of the MigrationController are checked even if it is not enabled.
    """
    if configuration.client_connection.burst < 0:
        yield InvalidInput("at least 0", configuration.client_connection.burst, "clientConnection.burst")
    if configuration.descheduling_interval < 0:
        yield InvalidInput("at least 0s", configuration.descheduling_interval, "deschedulingInterval")
    yield from _leader_election(configuration)
    yield from _address(configuration.healthz_bind_address, "healthzBindAddress")
    yield from _address(configuration.metrics_bind_address, "metricsBindAddress")
    yield from check_selector(configuration.node_selector, "nodeSelector")
    names: set[str] = set()
    for index, profile in enumerate(configuration.profiles):
        path = f"profiles[{index}]"
        if not profile.name:
            yield InvalidInput("a name, because there are several profiles", profile.name, f"{path}.name")
        elif profile.name in names:
            yield InvalidInput("a name that no other profile has", profile.name, f"{path}.name")
        names.add(profile.name)
        yield from check_selector(profile.node_selector, f"{path}.nodeSelector")
        yield from _arguments(profile, path, registry)


def _leader_election(configuration: DeschedulerConfiguration) -> Iterator[InvalidInput]:
    election = configuration.leader_election
    if not election.leader_elect:
        return
    for seconds, name in (
        (election.lease_duration, "leaseDuration"),
        (election.renew_deadline, "renewDeadline"),
        (election.retry_period, "retryPeriod"),
    ):
        if seconds <= 0:
            yield InvalidInput("a duration above 0s", f"{seconds:g}s", f"leaderElection.{name}")
    if election.lease_duration <= election.renew_deadline:
        rule = f"longer than renewDeadline ({election.renew_deadline:g}s)"
        yield InvalidInput(rule, f"{election.lease_duration:g}s", "leaderElection.leaseDuration")
    for text, name in (
        (election.resource_lock, "resourceLock"),
        (election.resource_name, "resourceName"),
        (election.resource_namespace, "resourceNamespace"),
    ):
        if not text:
            yield InvalidInput("a text that is not empty", text, f"leaderElection.{name}")


def _address(text: str, path: str) -> Iterator[InvalidInput]:
    match = _ADDRESS.fullmatch(text)
    if match is None or not _is_host(match):
        yield InvalidInput("host:port, with an IP address or a DNS name", text, path)
    elif not match["port"] or int(match["port"]) > _HIGHEST_PORT:
        yield InvalidInput(f"host:port, with a port of 0..{_HIGHEST_PORT}", text, path)


def _is_host(match: re.Match[str]) -> bool:
    host = match["host"] if match["six"] is None else match["six"]
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return match["six"] is None and _HOST.fullmatch(host) is not None and not re.fullmatch(r"[0-9.]+", host)
    return True


def _arguments(profile: ProfileConfiguration, path: str, registry: Registry) -> Iterator[InvalidInput]:
    counts = Counter(entry.name for entry in profile.plugin_config)
    for index, entry in enumerate(profile.plugin_config):
        where = f"{path}.pluginConfig[{index}]"
        if counts[entry.name] > 1:
            yield InvalidInput("a plugin that has one entry", entry.name, f"{where}.name")
        elif entry.name == MIGRATION_CONTROLLER:
            args = profile_args(profile, entry.name, registry)
            for problem in registry[entry.name].check(args):
                yield problem.at(f"{where}.args")


def framework_problems(configuration: DeschedulerConfiguration, registry: Registry) -> Iterator[InvalidInput]:
    """Yield why profiles cannot be built (stage framework).

    Arguments of plugins that are not enabled are not checked, nor are those of the MigrationController, which
    `value_problems` checks.
    """
    for index, profile in enumerate(configuration.profiles):
        path = f"profiles[{index}]"
        enabled: dict[str, None] = {}
        for point in Point:
            where = f"{path}.plugins.{point.value}.enabled"
            names = [each.name for each in profile.plugins.at(point).enabled]
            listed: dict[str, None] = {}
            for place, name in enumerate(names):
                kind = registry.get(name)
                if kind is None:
                    yield InvalidInput("a plugin that exists", name, f"{where}[{place}].name")
                elif point not in kind.points:
                    served = ", ".join(sorted(kind.points))
                    yield InvalidInput(
                        f"a plugin of this point ({name} serves {served})", name, f"{where}[{place}].name"
                    )
                elif name in listed:
                    yield InvalidInput("a plugin that is listed once", name, f"{where}[{place}].name")
                else:
                    enabled[name] = listed[name] = None
            if point is Point.EVICT and len(names) != 1:
                yield InvalidInput("exactly one plugin", names, where)
        for name in enabled:
            yield from _enabled_arguments(profile, name, path, registry)


def _enabled_arguments(
    profile: ProfileConfiguration, name: str, path: str, registry: Registry
) -> Iterator[InvalidInput]:
    if name == MIGRATION_CONTROLLER:
        return
    where = f"{path}.pluginConfig[{name}].args"
    try:
        args = profile_args(profile, name, registry)
    except InvalidConfiguration as error:
        yield from (problem.at(where) for problem in error.problems)
        return
    except InvalidInput as error:
        yield error.at(where)
        return
    for problem in registry[name].check(args):
        yield problem.at(where)


def unknown_arguments(written: DeschedulerConfiguration, registry: Registry) -> Iterator[InvalidInput]:
    """Yield an error for each unknown field in the arguments of plugins of the Kubernetes descheduler.

    The service ignores them, as Koordinator does. `written`: the document as it was decoded.

    Source: reality.md, 5.4
    """
    for index, profile in enumerate(written.profiles):
        for entry in profile.plugin_config:
            kind = registry.get(entry.name)
            if kind is None or kind.arguments is None or entry.args is None:
                continue
            path = f"profiles[{index}].pluginConfig[{entry.name}].args"
            try:
                read(kind.arguments, without_nulls(without_type(entry.args)), path)
            except InvalidConfiguration as error:
                yield from (problem for problem in error.problems if problem.rule == UNKNOWN_FIELD)


LOW_NODE_LOAD: Final = "LowNodeLoad"
_LOCK: Final = "the lease is a key of the log"
NOT_ACTED_ON: Final = {
    "leaderElection.resourceLock": _LOCK,
    "leaderElection.resourceName": _LOCK,
    "leaderElection.resourceNamespace": _LOCK,
    "clientConnection": "the descheduler uses the log, not an API server",
    "enableContentionProfiling": "a profile of the process shows waiting, too",
}
"""Fields of the document that are accepted without effect, with the reason."""
IDLE_ARGUMENTS: Final = {("MigrationController", "maxConcurrentReconciles"): "one task does this work"}
"""Arguments that are accepted without effect: (plugin, field) -> reason."""
OFF_LIMITER: Final = "a limit per namespace needs a number in maxMigrating"
"""Why an object limiter is off whose `maxMigrating` is a percentage or not given."""

NO_NAMESPACES: Final = "without matchLabels it selects nothing and protects no pod, as upstream"
"""Why a selector of namespaces is off that has expressions only."""


def settings_without_effect(
    written: DeschedulerConfiguration, effective: DeschedulerConfiguration
) -> Iterator[Ignored]:
    """`written`: the document as it was decoded. `effective`: the same with all defaults."""
    yield from fields_without_effect(written, NOT_ACTED_ON)
    for index, (profile, filled) in enumerate(zip(written.profiles, effective.profiles, strict=False)):
        yield from _idle_plugins(profile, filled, f"profiles[{index}]")
        enabled = {each.name for point in Point for each in filled.plugins.at(point).enabled}
        for entry in profile.plugin_config:
            path = f"profiles[{index}].pluginConfig[{entry.name}]"
            if entry.name not in enabled:
                yield Ignored(path, "the profile does not enable the plugin")
                continue
            for field in entry.args or {}:
                if (why := IDLE_ARGUMENTS.get((entry.name, field))) is not None:
                    yield Ignored(f"{path}.args.{field}", why)
            match entry.args:
                case {"objectLimiters": {"namespace": {"maxMigrating": int()}}}:
                    pass
                case {"objectLimiters": {"namespace": _}}:
                    yield Ignored(f"{path}.args.objectLimiters.namespace", OFF_LIMITER)
                case {"namespaceLabelSelector": {"matchLabels": {**labels}}} if labels:
                    pass
                case {"namespaceLabelSelector": {"matchExpressions": _}} if entry.name == "DefaultEvictor":
                    yield Ignored(f"{path}.args.namespaceLabelSelector", NO_NAMESPACES)
                case _:
                    pass


def _idle_plugins(profile: ProfileConfiguration, filled: ProfileConfiguration, path: str) -> Iterator[Ignored]:
    """Yield disabled plugins that are no default ones, and values because of which a plugin does nothing."""
    for point in Point:
        for place, each in enumerate(profile.plugins.at(point).disabled):
            if each.name not in (ALL, *DEFAULT_PLUGINS[point]):
                yield Ignored(f"{path}.plugins.{point.value}.disabled[{place}]", "no default plugin has this name")
    for entry in profile.plugin_config:
        args, where = entry.args or {}, f"{path}.pluginConfig[{entry.name}].args"
        match entry.name, args:
            case "RemovePodsViolatingNodeAffinity", {"nodeAffinityType": [*types]}:
                for place, text in enumerate(types):
                    if text not in (REQUIRED, PREFERRED):
                        yield Ignored(f"{where}.nodeAffinityType[{place}]", f"must be {REQUIRED} or {PREFERRED}")
            case _:
                pass
    enabled = {each.name for each in filled.plugins.balance.enabled}
    for entry in filled.plugin_config:
        if entry.name != LOW_NODE_LOAD:
            continue
        pools: list[Mapping[str, object]] = (entry.args or {}).get("nodePools", [])
        is_idle = not any(pool.get("highThresholds") or pool.get("prodHighThresholds") for pool in pools)
        if pools and is_idle and LOW_NODE_LOAD in enabled:
            yield Ignored(f"{path}.plugins.balance", f"{LOW_NODE_LOAD} does nothing without a high threshold")


def endless_evictions(effective: DeschedulerConfiguration) -> Iterator[Ignored]:
    """Yield settings with which a pod may leave again and again, as with the Kubernetes descheduler."""
    for index, profile in enumerate(effective.profiles):
        for entry in profile.plugin_config:
            match entry.name, entry.args:
                case "RemovePodsViolatingNodeAffinity", {"nodeAffinityType": [*types]} if PREFERRED in types:
                    path = f"profiles[{index}].pluginConfig[{entry.name}].args.nodeAffinityType"
                    yield Ignored(path, "a pod leaves again and again while its preferred node has no room for it")
                case _:
                    pass
