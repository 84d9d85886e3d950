"""The configuration with all defaults: merged plugins, complete addresses, arguments of native plugins; and its hash.

Source:
    descheduler spec, 3.1, 3.2, 12 (actor: configuration hash; action config_change)
"""

import hashlib
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from koordcore.events.descheduling import ChangedField
from koordcore.protocol.component_config import InvalidConfiguration
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_descheduler.domain.config import document
from koord_descheduler.domain.config.document import DeschedulerConfiguration
from koord_descheduler.domain.framework.plugin import Point
from koord_descheduler.domain.framework.registry import Args, Registry

DEFAULT_PROFILE: Final = "koord-descheduler"
DEFAULT_PORT: Final = 10251
_ANY_HOST: Final = "0.0.0.0"  # noqa: S104 - the default of the reference
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_DEFAULT_QPS: Final = 50
_DEFAULT_BURST: Final = 100
DEFAULT_PLUGINS: Final[Mapping[Point, tuple[str, ...]]] = {
    Point.DESCHEDULE: (),
    Point.BALANCE: (),
    Point.EVICT: ("MigrationController",),
    Point.FILTER: ("MigrationController",),
}


def with_defaults(written: document.DeschedulerConfiguration, registry: Registry) -> document.DeschedulerConfiguration:
    """Fill in all defaults. Without profiles, the configuration gets the default profile.

    The plugins of each profile are merged with the default ones.

    Raises:
        InvalidConfiguration: Arguments of native plugins have unknown fields or wrong types, or an entry of a known
            plugin has no arguments.
    """
    problems: list[InvalidInput] = []
    profiles = written.profiles or (document.ProfileConfiguration(name=DEFAULT_PROFILE),)
    if len(profiles) == 1 and not profiles[0].name:
        profiles = (profiles[0].model_copy(update={"name": DEFAULT_PROFILE}),)
    effective = tuple(
        _profile(profile, registry, f"profiles[{index}]", problems) for index, profile in enumerate(profiles)
    )
    if problems:
        raise InvalidConfiguration(problems)
    profiling = written.enable_contention_profiling
    return written.model_copy(
        update={
            "profiles": effective,
            "enable_contention_profiling": written.enable_profiling if profiling is None else profiling,
            "client_connection": _connection(written.client_connection),
            "healthz_bind_address": complete_address(written.healthz_bind_address),
            "metrics_bind_address": complete_address(written.metrics_bind_address),
        }
    )


def profile_args(profile: document.ProfileConfiguration, name: str, registry: Registry) -> Args:
    """The decoded arguments of a plugin in a profile; its defaults if the profile has none.

    Raises:
        InvalidInput: The arguments are invalid. The error has the path inside the arguments.
    """
    raw = next((each.args for each in profile.plugin_config if each.name == name), None)
    return registry[name].decode(without_type(raw or {}))


def complete_address(text: str) -> str:
    """Return an address with host and port.

    An empty text becomes 0.0.0.0:10251. An address such as ":8080" gets the host 0.0.0.0, and a bare IP address gets
    the port 10251. Other texts are returned unchanged, so that the validation can name them.
    """
    if not text:
        return f"{_ANY_HOST}:{DEFAULT_PORT}"
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return f"{_ANY_HOST}{text}" if text.startswith(":") else text
    return f"[{text}]:{DEFAULT_PORT}" if address.version == 6 else f"{text}:{DEFAULT_PORT}"


def _connection(written: document.ClientConnection) -> document.ClientConnection:
    accepted = written.accept_content_types
    if not written.content_type and not accepted:
        accepted = f"{PROTOBUF},application/json"
    return document.ClientConnection(
        kubeconfig=written.kubeconfig,
        content_type=written.content_type or PROTOBUF,
        accept_content_types=accepted,
        qps=written.qps or _DEFAULT_QPS,
        burst=written.burst or _DEFAULT_BURST,
    )


def merged(defaults: Sequence[str], own: document.PluginSet) -> document.PluginSet:
    """The plugins that are enabled at one extension point (descheduler spec, 3.2 (3)).

    Defaults that are not disabled come first, then the plugins that the user enables, without the defaults among them.
    A name that the user enables twice stays twice, so that the validation can name it.
    """
    disabled = {each.name for each in own.disabled}
    kept = [] if document.ALL in disabled else [name for name in defaults if name not in disabled]
    others = [each.name for each in own.enabled]
    for name in kept:
        if name in others:
            others.remove(name)
    return document.PluginSet(enabled=tuple(document.PluginName(name=name) for name in (*kept, *others)))


def _profile(
    written: document.ProfileConfiguration, registry: Registry, path: str, problems: list[InvalidInput]
) -> document.ProfileConfiguration:
    plugins = document.Plugins(
        **{point.value: merged(defaults, written.plugins.at(point)) for point, defaults in DEFAULT_PLUGINS.items()}
    )
    entries: list[document.PluginArguments] = []
    for index, entry in enumerate(written.plugin_config):
        try:
            entries.append(_arguments(entry, registry))
        except InvalidInput as error:
            problems.append(error.at(f"{path}.pluginConfig[{index}]"))
    named = {entry.name for entry in written.plugin_config}
    for point in Point:
        for each in plugins.at(point).enabled:
            if each.name not in named and each.name in registry and registry[each.name].is_native:
                named.add(each.name)
                entries.append(_arguments(document.PluginArguments(name=each.name, args={}), registry))
    return written.model_copy(update={"plugins": plugins, "plugin_config": tuple(entries)})


def _arguments(entry: document.PluginArguments, registry: Registry) -> document.PluginArguments:
    """Those of plugins that are not native stay as they are written."""
    kind = registry.get(entry.name)
    if kind is None:
        return entry
    if entry.args is None:
        raise InvalidInput(f"the arguments of {entry.name}", None, "args")
    for field, wanted in (("apiVersion", document.API_VERSION), ("kind", f"{entry.name}Args")):
        found = entry.args.get(field)
        if found is not None and found != wanted:
            raise InvalidInput(wanted, found, f"args.{field}")
    if not kind.is_native:
        return entry
    try:
        args = kind.decode(without_type(entry.args)).as_json()
    except InvalidInput as error:
        raise error.at("args") from error
    return document.PluginArguments(
        name=entry.name, args={"apiVersion": document.API_VERSION, "kind": f"{entry.name}Args", **args}
    )


def without_type(args: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in args.items() if name not in ("apiVersion", "kind")}


_DIGITS: Final = 16
_MOST_CHANGES: Final = 100
_LONGEST: Final = 256


def configuration_hash(configuration: DeschedulerConfiguration) -> str:
    """16 hex digits."""
    return hashlib.sha256(codec.encode_canonical(configuration.as_json())).hexdigest()[:_DIGITS]


def changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, ChangedField]:
    """Path -> values of the fields that differ between two effective configurations, the first 100 by path.

    The values are JSON texts, cut after 256 characters. "" means that one configuration does not have the field.
    """
    old, new = dict(_fields(before, "")), dict(_fields(after, ""))
    changed = [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]
    return {
        path: ChangedField(before=old.get(path, "")[:_LONGEST], after=new.get(path, "")[:_LONGEST])
        for path in changed[:_MOST_CHANGES]
    }


def _fields(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield path and JSON text of every value that is neither an object nor a list."""
    if isinstance(value, Mapping):
        for name, each in cast("Mapping[str, object]", value).items():
            yield from _fields(each, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, each in enumerate(cast("list[object]", value)):
            yield from _fields(each, f"{path}[{index}]")
    else:
        yield path, codec.encode(value).decode()
