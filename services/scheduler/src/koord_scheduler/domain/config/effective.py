"""What a scheduler does: the profiles with every plugin, weight and argument filled in.

source    scheduler-core spec, 4
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from koordcore.values.invalid import InvalidInput

from koord_scheduler.domain.config.catalogue import BUILT_IN, Catalogue, Point
from koord_scheduler.domain.config.document import (
    VERSIONS,
    PluginArguments,
    WrittenConfiguration,
    WrittenProfile,
    read_configuration,
)
from koord_scheduler.domain.config.merging import merge_plugins
from koord_scheduler.domain.config.problems import InvalidConfiguration, refuse
from koord_scheduler.domain.config.spelling import wire_name
from koord_scheduler.domain.config.wire import WireModel, read

DEFAULT_SCHEDULER: Final = "default-scheduler"
A = TypeVar("A", bound=WireModel)


class Ignored(NamedTuple):
    """Something that was written, is accepted, and changes nothing here."""

    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveProfile:
    """The plugins of one scheduler name.

    percentage_of_nodes_to_score   0: adaptive (`domain.sampling`)
    points                         names in order; every point has an entry
    weights                        of the plugins at `score`, in their order
    args                           of every plugin that takes any and runs at some point
    """

    scheduler_name: str
    percentage_of_nodes_to_score: int
    points: Mapping[Point, tuple[str, ...]]
    weights: Mapping[str, int]
    args: Mapping[str, WireModel]

    def args_of(self, plugin: str, kind: type[A]) -> A:
        """The arguments of a plugin, typed; its defaults when it does not run in this profile."""
        args = self.args.get(plugin, None)
        if args is None:
            return kind()
        assert isinstance(args, kind), f"{plugin} takes {type(args).__name__}, not {kind.__name__}"
        return args

    def as_json(self) -> dict[str, object]:
        """The profile in Kubernetes' shape, defaults replaced by what they are: read again it gives the same."""
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
    """The whole configuration.

    profiles   at least one, scheduler names differ
    ignored    what was written and changes nothing here, with the reason
    """

    pod_initial_backoff_seconds: int
    pod_max_backoff_seconds: int
    profiles: tuple[EffectiveProfile, ...]
    ignored: tuple[Ignored, ...] = ()

    def profile(self, scheduler_name: str) -> EffectiveProfile | None:
        """The profile of a pod's scheduler name; None: the pod is not ours."""
        return next((profile for profile in self.profiles if profile.scheduler_name == scheduler_name), None)

    def as_json(self) -> dict[str, object]:
        """A KubeSchedulerConfiguration that says everything; read again it gives the same profiles."""
        return {
            "apiVersion": VERSIONS[0],
            "kind": "KubeSchedulerConfiguration",
            "podInitialBackoffSeconds": self.pod_initial_backoff_seconds,
            "podMaxBackoffSeconds": self.pod_max_backoff_seconds,
            "profiles": [profile.as_json() for profile in self.profiles],
        }


def effective_configuration(text: bytes, catalogue: Catalogue = BUILT_IN) -> EffectiveConfiguration:
    """What a configuration file means.

    text      see `document.read_configuration`
    raises    InvalidInput; InvalidConfiguration with every problem, each with field, rule and value
    source    scheduler-core spec, 4, rules 1 to 5
    """
    written, path = read_configuration(text)
    problems: list[InvalidInput] = []
    profiles: list[EffectiveProfile] = []
    for index, profile in enumerate(written.profiles or (WrittenProfile(),)):
        effective, found = _effective_profile(profile, written, catalogue)
        profiles.append(effective)
        problems += [problem.at(f"profiles[{index}]") for problem in found]
    problems += _names(written)
    problems += _sorters(profiles)
    refuse(InvalidInput(problem.rule, problem.value, path + problem.path) for problem in problems)
    return EffectiveConfiguration(
        pod_initial_backoff_seconds=written.pod_initial_backoff_seconds,
        pod_max_backoff_seconds=written.pod_max_backoff_seconds,
        profiles=tuple(profiles),
        ignored=tuple(_ignored(written, profiles, catalogue)),
    )


def _effective_profile(
    written: WrittenProfile, configuration: WrittenConfiguration, catalogue: Catalogue
) -> tuple[EffectiveProfile, list[InvalidInput]]:
    merged, problems = merge_plugins(written.plugins, catalogue)
    problems = [problem.at("plugins") for problem in problems]
    given, faults = _arguments(written.plugin_config, catalogue)
    problems += faults
    running = {name for names in merged.order.values() for name in names}
    args: dict[str, WireModel] = {}
    for name, known in catalogue.items():
        if name in running and known.args is not None:
            args[name] = given[name] if name in given else known.args()
    own = written.percentage_of_nodes_to_score
    effective = EffectiveProfile(
        scheduler_name=written.scheduler_name or DEFAULT_SCHEDULER,
        percentage_of_nodes_to_score=configuration.percentage_of_nodes_to_score if own is None else own,
        points=MappingProxyType(merged.order),
        weights=MappingProxyType(merged.weights),
        args=MappingProxyType(args),
    )
    return effective, problems


def _arguments(
    written: tuple[PluginArguments, ...], catalogue: Catalogue
) -> tuple[dict[str, WireModel], list[InvalidInput]]:
    args: dict[str, WireModel] = {}
    problems: list[InvalidInput] = []
    seen: set[str] = set()
    for index, entry in enumerate(written):
        path = f"pluginConfig[{index}]"
        known = catalogue.get(entry.name)
        if known is None:
            problems.append(
                InvalidInput("the name of a plugin that exists or is installed", entry.name, f"{path}.name")
            )
        elif entry.name in seen:
            problems.append(InvalidInput("configured once", entry.name, f"{path}.name"))
        else:
            try:
                read_args = _read_args(entry, known.args, f"{path}.args")
            except InvalidConfiguration as error:
                problems += error.problems
            else:
                if read_args is not None:
                    args[entry.name] = read_args
        seen.add(entry.name)
    return args, problems


def _read_args(entry: PluginArguments, kind: type[WireModel] | None, path: str) -> WireModel | None:
    """The arguments, of the kind `<plugin>Args` when they name one."""
    fields = dict(entry.args)
    named, version = fields.pop("kind", None), fields.pop("apiVersion", VERSIONS[0])
    problems: list[InvalidInput] = []
    if named is not None and named != f"{entry.name}Args":
        problems.append(InvalidInput(f"{entry.name}Args", named, f"{path}.kind"))
    if version not in VERSIONS:
        problems.append(InvalidInput(f"one of {', '.join(VERSIONS)}", version, f"{path}.apiVersion"))
    if kind is None:
        if fields:
            problems.append(InvalidInput(f"left out: {entry.name} takes no arguments", fields, path))
        refuse(problems)
        return None
    try:
        args = read(kind, fields, path)
    except InvalidConfiguration as error:
        raise InvalidConfiguration([*problems, *error.problems]) from error
    refuse(problems)
    return args


def _names(written: WrittenConfiguration) -> Iterator[InvalidInput]:
    """Each profile has a name of its own; a single one may go without."""
    seen: set[str] = set()
    for index, profile in enumerate(written.profiles):
        path = f"profiles[{index}].schedulerName"
        name = profile.scheduler_name
        if not name:
            if name is not None or len(written.profiles) > 1:
                yield InvalidInput("given", name, path)
        elif name in seen:
            yield InvalidInput("unique among the profiles", name, path)
        else:
            seen.add(name)


def _sorters(profiles: Sequence[EffectiveProfile]) -> Iterator[InvalidInput]:
    """All profiles share one queue."""
    first = profiles[0].points[Point.QUEUE_SORT]
    for index, profile in enumerate(profiles):
        sorters = profile.points[Point.QUEUE_SORT]
        if sorters != first:
            path = f"profiles[{index}].plugins.queueSort"
            yield InvalidInput(f"the same as in the first profile ({', '.join(first)})", list(sorters), path)


NOT_ACTED_ON: Final = {
    "parallelism": "all nodes are judged at once in one thread",
    "leaderElection": "the service's own flags (--leader-elect and its kin) say how a leader is chosen",
    "clientConnection": "the scheduler talks to the log, not to an API server",
    "enableProfiling": "there is no profiling endpoint",
    "enableContentionProfiling": "there is no profiling endpoint",
    "delayCacheUntilActive": "a standby always folds the log, so that it can take over at once",
    "healthzBindAddress": "the service's own flags (--http-host, --http-port) say where it serves",
    "metricsBindAddress": "the service's own flags (--http-host, --http-port) say where it serves",
    "extenders": "extenders are not called",
}
"""Fields of the document that are accepted and change nothing here, with the reason."""

IDLE_ARGUMENTS: Final = {
    ("Coscheduling", "skip_check_schedule_cycle"): "has no effect since v1.5",
    ("Coscheduling", "controller_workers"): "one task does this work",
    ("Reservation", "controller_workers"): "one task does this work",
    ("DeviceShare", "allocator"): "there is one allocator",
}
"""Arguments that are accepted and change nothing here: (plugin, attribute) -> the reason."""


def _ignored(
    written: WrittenConfiguration, profiles: Sequence[EffectiveProfile], catalogue: Catalogue
) -> Iterator[Ignored]:
    given = written.model_dump(by_alias=True, exclude_unset=True)
    for name, why in NOT_ACTED_ON.items():
        if name in given:
            yield Ignored(name, why)
    for index, profile in enumerate(profiles):
        for plugin, args in profile.args.items():
            for field in sorted(args.model_fields_set):
                why = IDLE_ARGUMENTS.get((plugin, field))
                if why is not None:
                    yield Ignored(f"profiles[{index}].pluginConfig[{plugin}].args.{wire_name(field)}", why)
        running = {name for names in profile.points.values() for name in names}
        idle = [name for name, known in catalogue.items() if name in running and not known.has_effect]
        if idle:
            yield Ignored(f"profiles[{index}].plugins", f"no effect in this version: {', '.join(idle)}")
