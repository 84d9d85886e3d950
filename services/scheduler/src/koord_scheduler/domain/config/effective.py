"""The effective configuration: profiles with every plugin, weight and argument filled in.

Source: scheduler-core spec, 4
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar

from koordcore.protocol.component_config import (
    Ignored,
    InvalidConfiguration,
    WireModel,
    fields_without_effect,
    read,
    refuse,
    wire_name,
)
from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.config.catalogue import BUILT_IN, Catalogue
from koord_scheduler.domain.config.document import (
    VERSIONS,
    WrittenConfiguration,
    WrittenProfile,
    configuration_document,
)
from koord_scheduler.domain.config.merging import (
    merge_plugins,
    misplaced,
    named_arguments,
    named_plugins,
    no_such_plugin,
    written_profiles,
)
from koord_scheduler.domain.framework.plugin import Point

DEFAULT_SCHEDULER: Final = "default-scheduler"
A = TypeVar("A", bound=WireModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveProfile:
    """A profile after defaults are merged: plugins, weights and arguments for the pods of one scheduler name."""

    scheduler_name: str
    # 0..100; 0 examines all nodes, or an adaptive number with random relaxation (`engine.sampled`).
    percentage_of_nodes_to_score: int
    # Extension point -> names of its plugins in order. Every point has an entry.
    points: Mapping[Point, tuple[str, ...]]
    weights: Mapping[str, int]  # Plugin at `score` -> weight, in order
    args: Mapping[str, WireModel]  # Plugin -> arguments, for every plugin that takes arguments and runs at some point

    def args_of(self, plugin: str, kind: type[A]) -> A:
        """The default arguments if it does not run in this profile."""
        args = self.args.get(plugin, None)
        if args is None:
            return kind()
        assert isinstance(args, kind), f"{plugin} takes {type(args).__name__}, not {kind.__name__}"
        return args

    def as_json(self) -> dict[str, object]:
        """Return the profile in Kubernetes' format with all defaults written out. Reading it gives the same profile."""
        plugins: dict[str, object] = {}
        for point, names in self.points.items():
            enabled: list[dict[str, object]] = [
                {"name": name, "weight": self.weights[name]} if point is Point.SCORE else {"name": name}
                for name in names
            ]
            plugins[str(point)] = {"enabled": enabled, "disabled": [{"name": "*"}]}
        return {
            "schedulerName": self.scheduler_name,
            "percentageOfNodesToScore": self.percentage_of_nodes_to_score,
            "plugins": plugins,
            "pluginConfig": [{"name": name, "args": args.as_json()} for name, args in self.args.items()],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveConfiguration:
    """A scheduler configuration after defaults are merged and checked."""

    pod_initial_backoff_seconds: int  # First back-off of a pod whose attempt failed
    pod_max_backoff_seconds: int  # Longest back-off
    profiles: tuple[EffectiveProfile, ...]  # At least one profile. Their scheduler names differ.
    enable_profiling: bool = True  # Whether the profiles of the process are served
    ignored: tuple[Ignored, ...] = ()  # Settings that have no effect, with the reason

    def profile(self, scheduler_name: str) -> EffectiveProfile | None:
        return next((profile for profile in self.profiles if profile.scheduler_name == scheduler_name), None)

    def args(self, kind: type[A]) -> A:
        """From the first profile that has them, otherwise the default arguments."""
        every = (args for profile in self.profiles for args in profile.args.values())
        return next((args for args in every if isinstance(args, kind)), None) or kind()

    def as_json(self) -> dict[str, object]:
        """Return a complete KubeSchedulerConfiguration. To read it again gives the same profiles."""
        return {
            "apiVersion": VERSIONS[0],
            "kind": "KubeSchedulerConfiguration",
            "podInitialBackoffSeconds": self.pod_initial_backoff_seconds,
            "podMaxBackoffSeconds": self.pod_max_backoff_seconds,
            "enableProfiling": self.enable_profiling,
            "profiles": [profile.as_json() for profile in self.profiles],
        }


def effective_configuration(text: bytes, catalogue: Catalogue = BUILT_IN) -> EffectiveConfiguration:
    """Read, check and complete a configuration file, YAML or JSON: a KubeSchedulerConfiguration, or a ConfigMap that
    contains one. Raises InvalidInput: the text contains no configuration, or more than one; InvalidConfiguration: it
    has problems; each has field, rule and value. Source: scheduler-core spec, 4, rules 1 to 5.
    """
    document, place = configuration_document(text)
    written, problems = _whole(document)
    share = 0 if written is None else written.percentage_of_nodes_to_score
    profiles: dict[int, EffectiveProfile] = {}
    for index, parts in enumerate(written_profiles(document)):
        path = f"profiles[{index}]"
        given, found = _checked_parts(parts, catalogue)
        try:
            profile = read(WrittenProfile, parts, path)
        except InvalidConfiguration:
            pass  # told with the whole document; what its plugins lack, only one that can be read says
        else:
            profiles[index], lacking = _effective_profile(profile, given, share, catalogue)
            found += lacking
        problems += [problem.at(path) for problem in found]
    problems += _names(written_profiles(document))
    problems += _sorters(profiles)
    problems += () if written is None else _extenders(written.extenders)
    if written is None or problems:
        raise InvalidConfiguration([problem.at(place) if place else problem for problem in problems])
    return EffectiveConfiguration(
        pod_initial_backoff_seconds=written.pod_initial_backoff_seconds,
        pod_max_backoff_seconds=written.pod_max_backoff_seconds,
        profiles=tuple(profiles.values()),
        enable_profiling=written.enable_profiling,
        ignored=tuple(_ignored(written, list(profiles.values()))),
    )


def _whole(document: Mapping[str, object]) -> tuple[WrittenConfiguration | None, list[InvalidInput]]:
    """Return the document with the defaults of its own fields; None and the problems if it is invalid."""
    try:
        return read(WrittenConfiguration, document, ""), []
    except InvalidConfiguration as error:
        return None, list(error.problems)


def _checked_parts(
    parts: Mapping[str, object], catalogue: Catalogue
) -> tuple[dict[str, WireModel], list[InvalidInput]]:
    """Return the valid arguments of a profile's plugins, and the problems of all parts that can be read."""
    problems = [problem.at("plugins") for problem in misplaced(named_plugins(parts), catalogue)]
    args: dict[str, WireModel] = {}
    seen: set[str] = set()
    for entry in named_arguments(parts):
        known = catalogue.get(entry.name)
        if known is None:
            problems.append(no_such_plugin(entry.name, f"{entry.path}.name", catalogue))
        elif entry.name in seen:
            problems.append(InvalidInput("configured once", entry.name, f"{entry.path}.name"))
        elif entry.args is not None:
            try:
                read_args = _read_args(entry.name, entry.args, known.args, f"{entry.path}.args")
            except InvalidConfiguration as error:
                problems += error.problems
            else:
                if read_args is not None:
                    args[entry.name] = read_args
        seen.add(entry.name)
    return args, problems


def _effective_profile(
    written: WrittenProfile, given: Mapping[str, WireModel], share: int, catalogue: Catalogue
) -> tuple[EffectiveProfile, list[InvalidInput]]:
    """Return the effective profile, and the problems of its plugins.

    Args:
        given: Plugin -> arguments that were written.
        share: percentageOfNodesToScore of a profile without its own value.
        catalogue: The plugins that the configuration may name.
    """
    merged, problems = merge_plugins(written.plugins, catalogue)
    running = {name for names in merged.order.values() for name in names}
    own = written.percentage_of_nodes_to_score
    args: dict[str, WireModel] = {}
    for name, known in catalogue.items():
        if name in running and known.args is not None:
            args[name] = given[name] if name in given else known.args()
    effective = EffectiveProfile(
        scheduler_name=written.scheduler_name or DEFAULT_SCHEDULER,
        percentage_of_nodes_to_score=share if own is None else own,
        points=MappingProxyType(merged.order),
        weights=MappingProxyType(merged.weights),
        args=MappingProxyType(args),
    )
    return effective, [problem.at("plugins") for problem in problems]


def _read_args(plugin: str, given: Mapping[str, object], kind: type[WireModel] | None, path: str) -> WireModel | None:
    """Return the validated arguments of a plugin. If they name a kind, it must be `<plugin>Args`."""
    fields = dict(given)
    named, version = fields.pop("kind", None), fields.pop("apiVersion", VERSIONS[0])
    problems: list[InvalidInput] = []
    if named is not None and named != f"{plugin}Args":
        problems.append(InvalidInput(f"{plugin}Args", named, f"{path}.kind"))
    if version not in VERSIONS:
        problems.append(InvalidInput(f"one of {', '.join(VERSIONS)}", version, f"{path}.apiVersion"))
    if kind is None:
        if fields:
            problems.append(InvalidInput(f"left out: {plugin} takes no arguments", fields, path))
        refuse(problems)
        return None
    try:
        args = read(kind, fields, path)
    except InvalidConfiguration as error:
        raise InvalidConfiguration([*problems, *error.problems]) from error
    refuse(problems)
    return args


def _names(profiles: Sequence[Mapping[str, object]]) -> Iterator[InvalidInput]:
    """Yield the problems of scheduler names: each profile needs its own, except a single profile."""
    seen: set[str] = set()
    for index, profile in enumerate(profiles):
        path = f"profiles[{index}].schedulerName"
        name = profile.get("schedulerName")
        if name is None or name == "":
            if name is not None or len(profiles) > 1:
                yield InvalidInput("given", name, path)
        elif isinstance(name, str):
            if name in seen:
                yield InvalidInput("unique among the profiles", name, path)
            seen.add(name)


def _sorters(profiles: Mapping[int, EffectiveProfile]) -> Iterator[InvalidInput]:
    """Yield a problem for each profile whose queue order is not that of the first one, because all share one queue."""
    if 0 not in profiles:
        return
    first = profiles[0].points[Point.QUEUE_SORT]
    for index, profile in profiles.items():
        sorters = profile.points[Point.QUEUE_SORT]
        if sorters != first:
            path = f"profiles[{index}].plugins.queueSort"
            yield InvalidInput(f"the same as in the first profile ({', '.join(first)})", list(sorters), path)


def _extenders(extenders: Sequence[Mapping[str, object]]) -> Iterator[InvalidInput]:
    """Yield a problem for each extender without which pods may not be placed. Extenders are not called."""
    for index, extender in enumerate(extenders):
        ignorable = extender.get("ignorable", False)
        if ignorable is not True:
            rule = f"true: extenders are not called (this one is {extender.get('urlPrefix', '')!r})"
            yield InvalidInput(rule, ignorable, f"extenders[{index}].ignorable")


NOT_ACTED_ON: Final = {
    "parallelism": "all nodes are evaluated at once in one thread",
    "leaderElection": "use the service's flags (--leader-elect and related ones)",
    "clientConnection": "the scheduler uses the log, not an API server",
    "enableContentionProfiling": "a profile of the process shows waiting, too",
    "delayCacheUntilActive": "a standby always folds the log, so that it can take over at once",
    "healthzBindAddress": "use the service's flags (--http-host, --http-port)",
    "metricsBindAddress": "use the service's flags (--http-host, --http-port)",
    "extenders": "extenders are not called; they are ignorable",
}
"""Fields of the document that are accepted without effect, with the reason."""

IDLE_ARGUMENTS: Final = {
    ("Coscheduling", "skip_check_schedule_cycle"): "no effect since v1.5",
    ("Coscheduling", "controller_workers"): "one task does this work",
    ("ElasticQuota", "enable_queue_hint"): "a refused pod is attempted again only if its quota admits it",
    ("ElasticQuota", "quota_snapshot_update_interval"): "a refused pod is compared with the present quotas",
    ("ElasticQuota", "hook_plugins"): "no hooks of quotas are called",
    ("Reservation", "controller_workers"): "one task does this work",
    ("Reservation", "resync_interval_seconds"): "the log brings every change of a Reservation",
    ("DeviceShare", "allocator"): "there is one allocator",
    ("VolumeBinding", "shape"): "free storage is not scored",
}
"""Arguments that are accepted without effect: (plugin, attribute) -> reason."""


def _ignored(written: WrittenConfiguration, profiles: Sequence[EffectiveProfile]) -> Iterator[Ignored]:
    yield from fields_without_effect(written, NOT_ACTED_ON)
    for index, profile in enumerate(profiles):
        running = {name for names in profile.points.values() for name in names}
        for entry in written.profiles[index].plugin_config if written.profiles else ():
            if entry.name not in running:
                yield Ignored(f"profiles[{index}].pluginConfig[{entry.name}]", "the profile does not enable the plugin")
        for plugin, args in profile.args.items():
            for field in sorted(args.model_fields_set):
                why = IDLE_ARGUMENTS.get((plugin, field))
                if why is not None:
                    yield Ignored(f"profiles[{index}].pluginConfig[{plugin}].args.{wire_name(field)}", why)
