"""What installed packages may add to an agent: strategies, policies of single pods, callbacks on state, and more.

A package offers a function under the entry point group `koord_agent.extensions`; it is called once at start with an
empty-handed `Extensions` and registers what it has:

    def register(extensions: Extensions) -> None:
        extensions.add_strategy("NightShift", NightShift())            # --qos-extension-plugins=NightShift=true
        extensions.add_callback(StateKind.NODE_SLO, "audit", told)

Everything is called in the thread of the node's rounds, one after the other; an error of an extension is a problem of
the round and nothing else. Source: agent spec, 4.1, 10.1, 22.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from koordcore.protocol import keys
from koordcore.values.invalid import InvalidInput

from koord_agent.domain.cgroup_layout import HostApplication
from koord_agent.domain.node_look import NodeLook
from koord_agent.domain.plan import Plan
from koord_agent.domain.pods import AgentPod


class StateKind(StrEnum):
    """States that callbacks hear of; with what as their object."""

    NODE_SLO = "NodeSLOSpec"
    """the effective NodeSLO in wire spelling"""
    ALL_PODS = "AllPods"
    """nothing: the pods are the target"""
    NODE_TOPOLOGY = "NodeTopology"
    """`CpuPools`: who may use which CPUs"""
    NODE_METADATA = "NodeMetadata"
    """labels and annotations of the node"""


@dataclass(frozen=True, slots=True)
class Target:
    """What a callback is about."""

    pods: tuple[AgentPod, ...]
    host_applications: tuple[HostApplication, ...]


Callback = Callable[[StateKind, object, Target], None]


class Strategy(Protocol):
    """A QoS strategy; it proposes, the arbiter decides."""

    def plans(self, look: NodeLook, *, ttl_ms: int) -> Iterable[Plan]:
        """What it wants of this moment; a plan lives for ttl_ms."""
        ...


class PodPolicies(Protocol):
    """Policies of single pods that have no annotation of their own: grey control."""

    def cpu_burst(self, pod: AgentPod) -> str | None:
        """The JSON that the annotation koordinator.sh/cpuBurst would have; None = nothing."""
        ...

    def memory_qos(self, pod: AgentPod) -> str | None:
        """The same of koordinator.sh/memoryQOS."""
        ...


EvictPod = Callable[[AgentPod], bool]
"""Ends an evicted pod here and now; False = the request alone stands."""


@dataclass(slots=True)
class Extensions:
    """Everything that was registered; a name is taken once. Raises InvalidInput for a second one."""

    strategies: dict[str, Strategy] = field(default_factory=dict[str, Strategy])
    policies: dict[str, PodPolicies] = field(default_factory=dict[str, PodPolicies])
    callbacks: dict[tuple[StateKind, str], Callback] = field(default_factory=dict[tuple[StateKind, str], Callback])
    controllers: dict[str, Callable[[], Awaitable[None]]] = field(
        default_factory=dict[str, Callable[[], Awaitable[None]]]
    )
    evict: EvictPod | None = None
    enabled: frozenset[str] = frozenset()
    """strategies that are switched on"""
    _injected: dict[str, tuple[AgentPod, AgentPod]] = field(default_factory=dict[str, tuple[AgentPod, AgentPod]])

    def add_strategy(self, name: str, strategy: Strategy) -> None:
        """A strategy; it runs where `--qos-extension-plugins` names it."""
        _add(self.strategies, name, strategy, "a strategy")

    def add_policies(self, name: str, policies: PodPolicies) -> None:
        """Policies of pods without annotations; of several, the first by name that has one wins (D-16)."""
        _add(self.policies, name, policies, "policies of pods")

    def add_callback(self, kind: StateKind, name: str, callback: Callback) -> None:
        """Called when a state changed since the last round; it sees the newest one, not every one."""
        _add(self.callbacks, (kind, name), callback, f"a callback on {kind}")

    def add_controller(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """A loop that runs as long as the agent does, on its event loop; when it ends or fails, the agent does."""
        _add(self.controllers, name, run, "a controller")

    def replace_eviction(self, evict: EvictPod) -> None:
        """Ends evicted pods in another way than by their containers' runtime."""
        if self.evict is not None:
            raise InvalidInput("registered once", evict, "the eviction of pods")
        self.evict = evict

    def switch(self, switches: Mapping[str, bool]) -> None:
        """Which strategies run. Raises InvalidInput for one that nobody has registered."""
        unknown = sorted(set(switches) - set(self.strategies))
        if unknown:
            raise InvalidInput(f"one of {sorted(self.strategies)}", unknown, "qos-extension-plugins")
        self.enabled = frozenset(name for name, on in switches.items() if on)

    def plans(self, look: NodeLook, *, ttl_ms: int, problems: list[str]) -> list[Plan]:
        """What the strategies that are switched on want."""
        found: list[Plan] = []
        for name in sorted(self.enabled):
            try:
                found.extend(self.strategies[name].plans(look, ttl_ms=ttl_ms))
            except Exception as error:  # noqa: BLE001 - code of others must not end the protection of a node
                problems.append(f"strategy {name}: {type(error).__name__}: {error}")
        return found

    def with_policies(self, look: NodeLook, problems: list[str]) -> NodeLook:
        """The look with the annotations of pods that policies were found for."""
        if not self.policies:
            return look
        pods = tuple(self._with_policies(pod, problems) for pod in look.pods)
        self._injected = {pod.uid: self._injected[pod.uid] for pod in look.pods}
        return replace(look, pods=pods)

    def _with_policies(self, pod: AgentPod, problems: list[str]) -> AgentPod:
        """One answer for one object: what comes after compares pods by identity."""
        known = self._injected.get(pod.uid)
        if known is not None and known[0] is pod:
            return known[1]
        added: dict[str, str] = {}
        for key in (keys.CPU_BURST, keys.MEMORY_QOS):
            if key not in pod.annotations and (text := self._policy(pod, key, problems)) is not None:
                added[key] = text
        injected = replace(pod, annotations={**pod.annotations, **added}) if added else pod
        self._injected[pod.uid] = pod, injected
        return injected

    def _policy(self, pod: AgentPod, key: str, problems: list[str]) -> str | None:
        for name in sorted(self.policies):
            policies = self.policies[name]
            try:
                found = policies.cpu_burst(pod) if key == keys.CPU_BURST else policies.memory_qos(pod)
            except Exception as error:  # noqa: BLE001 - as above
                problems.append(f"policies {name}: {type(error).__name__}: {error}")
                continue
            if found is not None:
                return found
        return None


class StateChanges:
    """One node's states as callbacks last heard of them. Owned by its agent."""

    def __init__(self, extensions: Extensions) -> None:
        self._extensions = extensions
        self._told: dict[StateKind, object] = {}

    def tell(self, look: NodeLook, pools: object, problems: list[str]) -> None:
        """Call who wants to know what changed since the last round.

        pools    who may use which CPUs; None = unknown
        """
        callbacks = self._extensions.callbacks
        if not callbacks:
            return
        target = Target(look.pods, look.host_applications)
        states: Sequence[tuple[StateKind, object, Any]] = (
            (StateKind.NODE_SLO, look.slo, look.slo),
            (StateKind.ALL_PODS, look.pods, None),
            (StateKind.NODE_TOPOLOGY, pools, pools),
            (StateKind.NODE_METADATA, (look.labels, look.annotations), (look.labels, look.annotations)),
        )
        for kind, state, shown in states:
            if state is None or self._told.get(kind) == state:
                continue
            self._told[kind] = state
            for (of, name), callback in sorted(callbacks.items()):
                if of is not kind:
                    continue
                try:
                    callback(kind, shown, target)
                except Exception as error:  # noqa: BLE001 - as above
                    problems.append(f"callback {name} on {kind}: {type(error).__name__}: {error}")


def _add(held: dict[Any, Any], name: object, value: object, what: str) -> None:
    if name in held:
        raise InvalidInput("a name that is not taken", name, what)
    held[name] = value
