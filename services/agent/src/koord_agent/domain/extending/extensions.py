"""Registry of the extensions that installed packages add to an agent.

A package offers a function under the entry point group `koord_agent.extensions`. The agent calls it once at start with
an empty `Extensions`:

    def register(extensions: Extensions) -> None:
        extensions.add_strategy(NightShift())                          # --qos-extension-plugins=NightShift=true
        extensions.add_collector("power", Power())
        extensions.add_callback(StateKind.NODE_SLO, "audit", told)

The protocols are in `extension_points`. `node_extensions` calls what is registered.

Source: agent spec, 22.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from koordcore.values.invalid import InvalidInput

from koord_agent.domain.extending.extension_points import (
    Callback,
    Collector,
    EvictPod,
    HttpHandler,
    JsonObject,
    PodCollector,
    PodFilter,
    PodMetricFiller,
    PodPolicies,
    Point,
    RunController,
    State,
    StateKind,
    TopologyHook,
)
from koord_agent.domain.failure import failure
from koord_agent.domain.strategies.strategy import Needs, Strategy

T = TypeVar("T")
OWN_PATHS: Final = ("/metrics", "/internal-metrics", "/external-metrics", "/events", "/healthz", "/readyz")
SHORTEST_SECONDS: Final = 1.0
"""Shortest interval of a collector or state."""


class ExtensionFailed(Exception):
    """Raised if an extension failed or took too long. The message is one sentence."""


class NotAsked(ExtensionFailed):
    """Raised if an extension was not called, because an earlier call in this cycle used up its time."""


class Guard(Protocol):
    """Calls the code of installed packages, so that their failures do not stop the agent."""

    def start_cycle(self) -> None:
        """Give every extension its time budget again."""
        ...

    def call(self, point: Point, name: str, function: Callable[[], T]) -> T:
        """Raises ExtensionFailed: The function raised, or the extension took too long in this cycle.

        Raises NotAsked: The extension took too long earlier in this cycle.
        """
        ...

    def poll(self, point: Point, name: str, function: Callable[[], T], *, due: bool) -> T | None:
        """Start a slow function in the background if `due`, and return each finished result once.

        None if there is no new one.

        Raises:
            ExtensionFailed: The last call failed, or it is still running although a call is due.
        """
        ...


class InPlace:
    """Calls extensions in the caller's thread and without limits of time, for simulated nodes and tests."""

    def start_cycle(self) -> None: ...

    def call(self, point: Point, name: str, function: Callable[[], T]) -> T:
        try:
            return function()
        except Exception as error:
            raise ExtensionFailed(failure(f"{point} {name}", error)) from error

    def poll(self, point: Point, name: str, function: Callable[[], T], *, due: bool) -> T | None:
        return self.call(point, name, function) if due else None


@dataclass(slots=True)
class Extensions:
    """Everything that installed packages registered, by extension point and name.

    A name can be used once at each extension point. A second registration raises InvalidInput.
    """

    strategies: dict[str, Strategy] = field(default_factory=dict[str, Strategy])
    needs: dict[str, Needs] = field(default_factory=dict[str, Needs])
    policies: dict[str, PodPolicies] = field(default_factory=dict[str, PodPolicies])
    callbacks: dict[tuple[StateKind, str], Callback] = field(default_factory=dict[tuple[StateKind, str], Callback])
    states: dict[str, State] = field(default_factory=dict[str, State])
    collectors: dict[str, Collector] = field(default_factory=dict[str, Collector])
    pod_filters: dict[tuple[PodCollector, str], PodFilter] = field(
        default_factory=dict[tuple[PodCollector, str], PodFilter]
    )
    pod_metrics: dict[str, PodMetricFiller] = field(default_factory=dict[str, PodMetricFiller])
    topology_hooks: dict[str, TopologyHook] = field(default_factory=dict[str, TopologyHook])
    slo_defaults: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    http: dict[str, HttpHandler] = field(default_factory=dict[str, HttpHandler])
    controllers: dict[str, RunController] = field(default_factory=dict[str, RunController])
    evict: EvictPod | None = None
    enabled: frozenset[str] = frozenset()
    """Names of the strategies that are switched on."""
    guard: Guard = field(default_factory=InPlace)
    failures: Counter[tuple[Point, str]] = field(default_factory=Counter[tuple[Point, str]])
    """Failures since the start, by extension point and name."""

    def add_strategy(self, strategy: Strategy) -> None:
        """Add a QoS strategy. It runs only if the flag `--qos-extension-plugins` enables its name."""
        _add(self.strategies, strategy.name, strategy, "a strategy")
        self.needs[strategy.name] = strategy.needs

    def add_policies(self, name: str, policies: PodPolicies) -> None:
        """Add policies for pods without annotations of their own.

        If several packages have a policy for a pod, the first package by name applies (D-16).
        """
        _add(self.policies, name, policies, "policies of pods")

    def add_callback(self, kind: StateKind, name: str, callback: Callback) -> None:
        """Add a callback for changes of a part of the node's state.

        It is called in a cycle if the state has changed since the last cycle. States between two cycles are missed.
        """
        _add(self.callbacks, (kind, name), callback, f"a callback on {kind}")

    def add_state(self, name: str, state: State) -> None:
        """Add a state of the node, which is read again and again.

        Strategies read the last value as `look.states[name]`, where the look is the snapshot of the node for a cycle.

        Raises:
            InvalidInput: The name is taken, or the interval is shorter than one second.
        """
        _require_pace("a state", name, state.every_seconds)
        _add(self.states, name, state, "a state")

    def add_collector(self, name: str, collector: Collector) -> None:
        """Add a collector, whose values become time series.

        Strategies read them as `look.metrics.last(Kind.EXTENSION, (name, metric, of))`, where the look is the
        snapshot of the node for a cycle.

        Raises:
            InvalidInput: The name is taken, or the interval is shorter than one second.
        """
        _require_pace("a collector", name, collector.every_seconds)
        _add(self.collectors, name, collector, "a collector")

    def add_pod_filter(self, collectors: Collection[PodCollector], name: str, keeps: PodFilter) -> None:
        """Add a filter for some groups of collectors. These collectors skip pods for which the filter returns False."""
        for collector in collectors:
            _add(self.pod_filters, (collector, name), keeps, f"a filter of pods for {collector}")

    def add_pod_metric(self, name: str, fill: PodMetricFiller) -> None:
        """Add a function that computes a value for each pod.

        The usage report contains it as `extensions.<name>` of the pod.
        """
        _add(self.pod_metrics, name, fill, "a metric of pods")

    def add_topology_hook(self, name: str, hook: TopologyHook) -> None:
        """Add a hook that adds annotations and zone resources to the report of the node's topology.

        Hooks run in the order of their names.
        """
        _add(self.topology_hooks, name, hook, "a topology hook")

    def add_slo_defaults(self, name: str, defaults: JsonObject) -> None:
        """Add defaults for `extensions.<name>` of the NodeSLO. The NodeSLO's own fields take precedence."""
        _add(self.slo_defaults, name, defaults, "defaults of the NodeSLO's extensions")

    def add_http(self, path: str, handler: HttpHandler) -> None:
        """Add an HTTP page to the agent's port.

        Raises:
            InvalidInput: The agent itself or another package uses the path.
        """
        if not path.startswith("/") or path.rstrip("/") in ("", *OWN_PATHS):
            raise InvalidInput("a path of its own, such as /power", path, "an HTTP handler")
        _add(self.http, path, handler, "an HTTP handler")

    def add_controller(self, name: str, run: RunController) -> None:
        """Add a coroutine that runs while the agent runs. If it ends or fails, it is restarted after a delay."""
        _add(self.controllers, name, run, "a controller")

    def replace_eviction(self, evict: EvictPod) -> None:
        """Register a function that ends evicted pods, in place of the container runtime that stops their containers.

        Raises:
            InvalidInput: Another function is already registered.
        """
        if self.evict is not None:
            raise InvalidInput("registered once", evict, "the eviction of pods")
        self.evict = evict

    def include(self, more: "Extensions") -> None:
        """Add everything that another package registered.

        Raises:
            InvalidInput: A name is already used. Earlier registrations stay.
        """
        for name in (
            "strategies",
            "needs",
            "policies",
            "callbacks",
            "states",
            "collectors",
            "pod_filters",
            "pod_metrics",
        ):
            _include(getattr(self, name), getattr(more, name), name.replace("_", " "))
        for name in ("topology_hooks", "slo_defaults", "http", "controllers"):
            _include(getattr(self, name), getattr(more, name), name.replace("_", " "))
        if more.evict is not None:
            self.replace_eviction(more.evict)

    def call(self, point: Point, name: str, function: Callable[[], T]) -> T:
        """Like `Guard.call`; a failure is counted."""
        try:
            return self.guard.call(point, name, function)
        except NotAsked:
            raise
        except ExtensionFailed:
            self.failures[point, name] += 1
            raise

    def poll(self, point: Point, name: str, function: Callable[[], T], *, due: bool) -> T | None:
        """Like `Guard.poll`; a failure is counted."""
        try:
            return self.guard.poll(point, name, function, due=due)
        except ExtensionFailed:
            self.failures[point, name] += 1
            raise

    def switch(self, switches: Mapping[str, bool]) -> None:
        """Set which registered strategies run. All strategies that `switches` does not name are switched off.

        Raises:
            InvalidInput: No package has registered a strategy with that name.
        """
        unknown = sorted(set(switches) - set(self.strategies))
        if unknown:
            raise InvalidInput(f"one of {sorted(self.strategies)}", unknown, "qos-extension-plugins")
        self.enabled = frozenset(name for name, on in switches.items() if on)


def _add(held: dict[Any, Any], name: object, value: object, what: str) -> None:
    if name in held:
        raise InvalidInput("a name that is not taken", name, what)
    held[name] = value


def _include(held: dict[Any, Any], more: Mapping[Any, Any], what: str) -> None:
    for name, value in more.items():
        _add(held, name, value, what)


def _require_pace(what: str, name: str, seconds: float) -> None:
    if not seconds >= SHORTEST_SECONDS:
        raise InvalidInput(f"an interval of at least {SHORTEST_SECONDS:g} s", seconds, f"{what} {name}")
