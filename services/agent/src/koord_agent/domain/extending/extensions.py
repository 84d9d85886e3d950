"""What installed packages add to an agent: the registry that they fill, and how their failures are told.

A package offers a function under the entry point group `koord_agent.extensions`; it is called once at start with an
empty-handed `Extensions` and registers what it has:

    def register(extensions: Extensions) -> None:
        extensions.add_strategy(NightShift())                          # --qos-extension-plugins=NightShift=true
        extensions.add_collector("power", Power())
        extensions.add_callback(StateKind.NODE_SLO, "audit", told)

What each of them is, is in `extension_points`; `node_extensions` calls them. source    agent spec, 22
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
from koord_agent.domain.qos.strategy import Needs, Strategy

T = TypeVar("T")
OWN_PATHS: Final = ("/metrics", "/internal-metrics", "/external-metrics", "/events", "/healthz", "/readyz")
SHORTEST_SECONDS: Final = 1.0
"""Between two looks of a collector or a state."""


class ExtensionFailed(Exception):
    """What an extension did wrong, in one sentence."""


class NotAsked(ExtensionFailed):
    """It had no time left in this round, as an earlier failure has told."""


class Guard(Protocol):
    """Calls the code of others, so that nothing that it does reaches the agent."""

    def start_cycle(self) -> None:
        """From here on every extension has the time of a round again."""
        ...

    def call(self, point: Point, name: str, function: Callable[[], T]) -> T:
        """What the function returns.

        raises    ExtensionFailed for whatever it raises, and once in a round when the extension takes too long;
                  NotAsked for the rest of that round
        """
        ...

    def poll(self, point: Point, name: str, function: Callable[[], T], *, due: bool) -> T | None:
        """Begins a call if one is due, and says what the last one came to, once; None = nothing new.

        raises    ExtensionFailed likewise
        """
        ...


class InPlace:
    """A guard that calls in the caller's thread: for simulated nodes and tests."""

    def start_cycle(self) -> None:
        """See `Guard.start_cycle`; a round may take as long as it likes."""

    def call(self, point: Point, name: str, function: Callable[[], T]) -> T:
        """See `Guard.call`; a call may take as long as it likes."""
        try:
            return function()
        except Exception as error:
            raise ExtensionFailed(failure(point, name, error)) from error

    def poll(self, point: Point, name: str, function: Callable[[], T], *, due: bool) -> T | None:
        """See `Guard.poll`; the call is over at once."""
        return self.call(point, name, function) if due else None


def failure(point: Point, name: str, error: BaseException) -> str:
    """`strategy NightShift: ValueError: not today`."""
    return f"{point} {name}: {type(error).__name__}: {error}"


@dataclass(slots=True)
class Extensions:
    """Everything that was registered; a name is taken once at each point. Raises InvalidInput for a second one."""

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
    """strategies that are switched on"""
    guard: Guard = field(default_factory=InPlace)
    failures: Counter[tuple[Point, str]] = field(default_factory=Counter[tuple[Point, str]])
    """how often each failed since the start"""

    def add_strategy(self, strategy: Strategy) -> None:
        """Add a strategy; it runs if `--qos-extension-plugins` switches its name on."""
        _add(self.strategies, strategy.name, strategy, "a strategy")
        self.needs[strategy.name] = strategy.needs

    def add_policies(self, name: str, policies: PodPolicies) -> None:
        """Policies of pods without annotations; of several, the first by name that has one wins (D-16)."""
        _add(self.policies, name, policies, "policies of pods")

    def add_callback(self, kind: StateKind, name: str, callback: Callback) -> None:
        """Called when a state changed since the last round; it sees the newest one, not every one."""
        _add(self.callbacks, (kind, name), callback, f"a callback on {kind}")

    def add_state(self, name: str, state: State) -> None:
        """A state of the node beside the agent's own: `look.states[name]`, the last one that could be read."""
        _require_pace("a state", name, state.every_seconds)
        _add(self.states, name, state, "a state")

    def add_collector(self, name: str, collector: Collector) -> None:
        """A collector; strategies ask for its values as `look.metrics.last(Kind.EXTENSION, (name, metric, of))`."""
        _require_pace("a collector", name, collector.every_seconds)
        _add(self.collectors, name, collector, "a collector")

    def add_pod_filter(self, collectors: Collection[PodCollector], name: str, keeps: PodFilter) -> None:
        """Pods that it does not keep are left out by these collectors."""
        for collector in collectors:
            _add(self.pod_filters, (collector, name), keeps, f"a filter of pods for {collector}")

    def add_pod_metric(self, name: str, fill: PodMetricFiller) -> None:
        """What it says of a pod stands in the report as `extensions.<name>` of the pod's metric."""
        _add(self.pod_metrics, name, fill, "a metric of pods")

    def add_topology_hook(self, name: str, hook: TopologyHook) -> None:
        """Adds annotations and resources of zones to the node's topology, in the order of their names."""
        _add(self.topology_hooks, name, hook, "a topology hook")

    def add_slo_defaults(self, name: str, defaults: JsonObject) -> None:
        """Defaults of the NodeSLO's `extensions.<name>`; what the NodeSLO says itself wins, field by field."""
        _add(self.slo_defaults, name, defaults, "defaults of the NodeSLO's extensions")

    def add_http(self, path: str, handler: HttpHandler) -> None:
        """A page of the agent's port. The agent's own paths are taken."""
        if not path.startswith("/") or path.rstrip("/") in ("", *OWN_PATHS):
            raise InvalidInput("a path of its own, such as /power", path, "an HTTP handler")
        _add(self.http, path, handler, "an HTTP handler")

    def add_controller(self, name: str, run: RunController) -> None:
        """A loop that runs as long as the agent does; when it ends or fails, it is begun again after a while."""
        _add(self.controllers, name, run, "a controller")

    def replace_eviction(self, evict: EvictPod) -> None:
        """Ends evicted pods in another way than by their containers' runtime."""
        if self.evict is not None:
            raise InvalidInput("registered once", evict, "the eviction of pods")
        self.evict = evict

    def include(self, more: "Extensions") -> None:
        """What another package registered. Raises InvalidInput for a name that is taken; nothing is rolled back."""
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
        """See `Guard.call`; a failure is counted."""
        try:
            return self.guard.call(point, name, function)
        except NotAsked:
            raise
        except ExtensionFailed:
            self.failures[point, name] += 1
            raise

    def poll(self, point: Point, name: str, function: Callable[[], T], *, due: bool) -> T | None:
        """See `Guard.poll`; a failure is counted."""
        try:
            return self.guard.poll(point, name, function, due=due)
        except ExtensionFailed:
            self.failures[point, name] += 1
            raise

    def switch(self, switches: Mapping[str, bool]) -> None:
        """Which strategies run. Raises InvalidInput for one that nobody has registered."""
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
        raise InvalidInput(f"looked at every {SHORTEST_SECONDS:g} s at most", seconds, f"{what} {name}")
