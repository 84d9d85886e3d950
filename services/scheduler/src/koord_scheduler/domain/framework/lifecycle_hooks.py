"""Extension points besides the choice of nodes: annotations of bound pods, failures, controllers, HTTP pages.

Source: scheduler-core spec, 1 (step 14 and failure handler) and 3 (PreBindExtensions, error handler filters,
controllers, plugin HTTP endpoints).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from koordcore.events.envelope import AggregateRef, Event

from koord_scheduler.domain.cluster.record import PodRecord
from koord_scheduler.domain.framework.plugin import Plugin

PageAnswer: TypeAlias = Callable[[Mapping[str, str]], object]
"""A function from the path parameters and query parameters, by name, to a JSON value. None or NotFound becomes 404."""


class NotFound(Exception):
    """The requested object of a plugin's HTTP page does not exist. Its text is the body of the 404 response."""


class PreBindPlugin(Plugin, Protocol):
    """A plugin that adds annotations to the binding of a pod. One binding has the annotations of all plugins."""

    def pre_bind(self, pod: PodRecord, node: str) -> Mapping[str, str]:
        """Annotation key -> value to write on the pod. If two plugins write the same key, the later plugin wins."""
        ...


class BeforeFailurePlugin(Plugin, Protocol):
    """A plugin that can handle a failed attempt instead of the scheduler."""

    def before_failure(self, pod: PodRecord, message: str) -> bool:
        """True if the plugin has handled the failure, False to leave it to the next plugin and the scheduler. If True,
        the scheduler publishes no explanation, and `before_failure` of later plugins is not called. The pod, which
        found no node or lost it before it was bound, waits for another attempt in either case. `message`: one sentence.
        """
        ...


class AfterFailurePlugin(Plugin, Protocol):
    """A plugin that is called after the scheduler has handled a failed attempt."""

    def after_failure(self, pod: PodRecord, message: str) -> None:
        """The pod found no node, or lost its node before it was bound. `message`: one sentence."""
        ...


@dataclass(frozen=True, slots=True)
class Eviction:
    """A plugin controller's request to evict a pod. It is carried out as far as PodDisruptionBudgets allow."""

    uid: str
    message: str  # Sentence for the owner of the pod
    reason: str = ""  # Reason in one word, for the event; "" stands for the plugin's name


@dataclass(frozen=True, slots=True)
class Status:
    """A status that a plugin's controller publishes as an event. No-op if it equals the last published one."""

    ref: AggregateRef  # The aggregate to which the event is appended, such as a quota
    event: Event


@dataclass(frozen=True, slots=True)
class ReservationLeft:
    """A plugin controller's decision that a pod uses its Reservation no longer. The pod keeps its node and amounts."""

    uid: str
    reservation: str  # Uid of the Reservation


ControllerDecision: TypeAlias = Eviction | Status | ReservationLeft


class ControllerPlugin(Plugin, Protocol):
    """A plugin whose controller runs periodically on the leader, if `--controller-plugins` names the plugin."""

    def control_due(self) -> float | None:
        """Return the time in Unix seconds at which `control` has work again. None: not before another event arrives.
        The scheduler leaves at least a second between two calls of `control`.
        """
        ...

    def control(self, now: float) -> Sequence[ControllerDecision]:
        """Return the pods to evict, the statuses to publish, and the pods that use their Reservations no longer.
        Requests to evict a pod without a node, or a pod that is being evicted already, are ignored. So is the end of a
        use by a pod about which another decision is under way. `now`: present time in Unix seconds.
        """
        ...


class PagesPlugin(Plugin, Protocol):
    """A plugin that serves HTTP pages on the leader."""

    def pages(self) -> Mapping[str, PageAnswer]:
        """Return path below `/apis/v1/plugins/<name>/` -> function that returns its response. `{part}` in a path is a
        parameter.
        """
        ...
