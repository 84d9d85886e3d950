"""KubeSchedulerConfiguration as users write it.

Source: scheduler-core spec, 4
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, cast

from koordcore.protocol import component_config
from koordcore.protocol.manifests.documents import read_documents
from koordcore.values.invalid import InvalidInput
from pydantic import AfterValidator, StrictFloat, StrictInt, ValidationInfo, field_validator

from koord_scheduler.domain.framework.plugin import Point

GROUP: Final = "kubescheduler.config.k8s.io"
VERSIONS: Final = tuple(f"{GROUP}/{version}" for version in ("v1", "v1beta3", "v1beta2"))
KIND: Final = "KubeSchedulerConfiguration"
CONFIG_MAP_KEYS: Final = ("koord-scheduler-config", "koord-scheduler.config", "scheduler-config")
"""Keys of a ConfigMap that may contain a configuration (spec, 16 no. 18)."""

ALL: Final = "*"


def _at_least_one_name(name: str) -> str:
    if not name:
        raise InvalidInput("a plugin's name", name)
    return name


def _of_kind(kind: str) -> str:
    if kind != KIND:
        raise InvalidInput(KIND, kind)
    return kind


def _of_version(version: str) -> str:
    if version not in VERSIONS:
        raise InvalidInput(f"one of {', '.join(VERSIONS)}", version)
    return version


PluginWeight = Annotated[StrictInt, component_config.within(0, component_config.INT32_MAX)]
PluginName = Annotated[component_config.Text, AfterValidator(_at_least_one_name)]


class EnabledPlugin(component_config.WireModel):
    """A plugin that a profile enables at an extension point. `weight` counts for scores only; 0 stands for 1."""

    name: PluginName
    weight: PluginWeight = 0


class DisabledPlugin(component_config.WireModel):
    """A default plugin that a profile disables at an extension point; `*` stands for all default plugins."""

    name: PluginName


class PluginSet(component_config.WireModel):
    """The plugins that a profile enables and disables at one extension point, relative to the defaults."""

    enabled: tuple[EnabledPlugin, ...] = ()
    disabled: tuple[DisabledPlugin, ...] = ()

    @field_validator("enabled", mode="after")
    @classmethod
    def _named_once(cls, enabled: tuple[EnabledPlugin, ...]) -> tuple[EnabledPlugin, ...]:
        seen: set[str] = set()
        for index, plugin in enumerate(enabled):
            if plugin.name in seen:
                raise InvalidInput("named once at a point", plugin.name, f"[{index}].name")
            seen.add(plugin.name)
        return enabled


class Plugins(component_config.WireModel):
    """The plugins that a profile enables and disables, for each extension point and for all of them (`multi_point`)."""

    multi_point: PluginSet = PluginSet()
    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()

    def at(self, point: Point) -> PluginSet:
        """Return the plugins that the profile enables and disables at one extension point."""
        changes: PluginSet = getattr(self, point.name.lower())
        return changes


class PluginArguments(component_config.WireModel):
    """The name of a plugin and its arguments as the user wrote them, before validation."""

    name: PluginName
    args: Mapping[component_config.Text, Any] = {}


class WrittenProfile(component_config.WireModel):
    """A profile as the user wrote it, before defaults are merged."""

    scheduler_name: component_config.Text | None = None  # Its scheduler name; None if it is not given
    # 0..100; None stands for the value of the whole document.
    percentage_of_nodes_to_score: component_config.Percent | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginArguments, ...] = ()


class LeaderElection(component_config.WireModel):
    """Settings of leader election in the document. None for a setting that is not given."""

    leader_elect: component_config.Bool | None = None
    lease_duration: component_config.Duration | None = None
    renew_deadline: component_config.Duration | None = None
    retry_period: component_config.Duration | None = None
    resource_lock: component_config.Text | None = None
    resource_name: component_config.Text | None = None
    resource_namespace: component_config.Text | None = None


class ClientConnection(component_config.WireModel):
    """Settings of the connection to the API server, which this scheduler accepts without effect."""

    kubeconfig: component_config.Text = ""
    accept_content_types: component_config.Text = ""
    content_type: component_config.Text = ""
    qps: StrictFloat | StrictInt = 50
    burst: component_config.Int32 = 100


class WrittenConfiguration(component_config.WireModel):
    """A KubeSchedulerConfiguration as the user wrote it, with defaults for its scalar fields only."""

    api_version: Annotated[component_config.Text, AfterValidator(_of_version)]
    kind: Annotated[component_config.Text, AfterValidator(_of_kind)]
    parallelism: component_config.Positive = 16
    percentage_of_nodes_to_score: component_config.Percent = 0
    pod_initial_backoff_seconds: component_config.Positive = 1
    pod_max_backoff_seconds: component_config.Positive = 10
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: component_config.Bool = True
    enable_contention_profiling: component_config.Bool = False
    delay_cache_until_active: component_config.Bool = False
    healthz_bind_address: component_config.Text = ""
    metrics_bind_address: component_config.Text = ""
    profiles: tuple[WrittenProfile, ...] = ()
    extenders: tuple[Mapping[component_config.Text, Any], ...] = ()

    @field_validator("pod_max_backoff_seconds", mode="after")
    @classmethod
    def _not_below_initial(cls, longest: int, info: ValidationInfo) -> int:
        initial = info.data.get("pod_initial_backoff_seconds", 0)
        if longest < initial:
            raise InvalidInput(f"at least podInitialBackoffSeconds ({initial})", longest)
        return longest


def configuration_document(text: bytes) -> tuple[Mapping[str, object], str]:
    """Return the configuration in a file before validation, and its path in the file ("" for the document itself).
    `text`: YAML or JSON: a KubeSchedulerConfiguration, or a ConfigMap that contains one under one of CONFIG_MAP_KEYS.
    Raises InvalidInput: the text contains no configuration, or more than one.
    """
    documents = [_object(document) for document in read_documents(text)]
    found = [document for document in documents if document.get("kind") == "ConfigMap" or _is_meant(document)]
    if len(found) != 1 or (len(documents) > 1 and _is_meant(found[0])):
        kinds = [str(document.get("kind")) for document in documents]
        raise InvalidInput(f"one {KIND}, or one ConfigMap that holds it", kinds, "documents")
    return _of_config_map(found[0]) if found[0].get("kind") == "ConfigMap" else (found[0], "")


def _is_meant(document: Mapping[str, object]) -> bool:
    """Return whether the document is a configuration by its kind or its API group (then its kind is mistyped)."""
    return document.get("kind") == KIND or str(document.get("apiVersion")).startswith(f"{GROUP}/")


def _of_config_map(document: Mapping[str, object]) -> tuple[Mapping[str, object], str]:
    data = document.get("data")
    entries: Mapping[str, object] = cast("dict[str, object]", data) if isinstance(data, dict) else {}
    key = next((key for key in CONFIG_MAP_KEYS if key in entries), None)
    if key is None:
        raise InvalidInput(f"a ConfigMap with one of the keys {', '.join(CONFIG_MAP_KEYS)}", sorted(entries), "data")
    path = f"data[{key}]"
    inner = entries[key]
    if not isinstance(inner, str):
        raise InvalidInput("text", inner, path)
    try:
        documents = read_documents(inner.encode())
    except InvalidInput as error:
        raise InvalidInput(error.rule, error.value, f"{path}, {error.path}" if error.path else path) from error
    if len(documents) != 1:
        raise InvalidInput(f"one {KIND}", f"{len(documents)} documents", path)
    return _object(documents[0]), path


def _object(document: object) -> Mapping[str, object]:
    if not isinstance(document, dict):
        raise InvalidInput(f"a {KIND}", document, "document")
    return cast("dict[str, object]", document)
