"""Extension points besides the choice of nodes: annotations of bound pods, failures, controllers, HTTP pages.

Source: scheduler-core spec, 1 (step 14 and failure handler) and 3 (PreBindExtensions, error handler filters,
controllers, plugin HTTP endpoints).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from koordcore.events.envelope import AggregateRef, Event

from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.record import PodRecord

PageAnswer: TypeAlias = Callable[[Mapping[str, str]], object]
"""A function from the path parameters and query parameters, by name, to a JSON value. None or NotFound becomes 404."""


class NotFound(Exception):
    """The object that a page is asked for does not exist. The text of the exception is the response."""


class PreBindPlugin(Plugin, Protocol):
    """A plugin that writes annotations on pods when they are bound. All annotations are part of one binding."""

    def pre_bind(self, pod: PodRecord, node: str) -> Mapping[str, str]:
        """Return annotation -> text. If two plugins write the same annotation, the later plugin wins."""
        ...


class BeforeFailurePlugin(Plugin, Protocol):
    """A plugin that is asked before the scheduler handles a failed attempt."""

    def before_failure(self, pod: PodRecord, message: str) -> bool:
        """Return whether the plugin has handled the failure.

        If so, no explanation is published and no other plugin is asked.

        The pod waits for another attempt in either case.
        """
        ...


class AfterFailurePlugin(Plugin, Protocol):
    """A plugin that is notified of every failed attempt, after it was handled."""

    def after_failure(self, pod: PodRecord, message: str) -> None:
        """Record that the pod found no node, or lost its node before it was bound."""
        ...


@dataclass(frozen=True, slots=True)
class Eviction:
    """A request to evict a pod, as far as disruption budgets allow.

    Attributes:
        uid: The pod.
        message: Reason for its user.
        reason: Reason in one word; "" stands for the plugin's name.
    """

    uid: str
    message: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """A status to publish as an event, unless it equals the last published one.

    Attributes:
        ref: The aggregate that the status belongs to.
        event: The status.
    """

    ref: AggregateRef
    event: Event


class ControllerPlugin(Plugin, Protocol):
    """A plugin whose controller runs periodically on the leader, if `--controller-plugins` names the plugin."""

    def control_due(self) -> float | None:
        """Return when `control` has work, in unix seconds of the run's clock. None: not before another event.

        The scheduler leaves at least a second between two calls.
        """
        ...

    def control(self, now: float) -> Sequence[Eviction | Status]:
        """Return the pods to evict and the statuses to publish.

        Pods without a node, and pods that are being evicted, are ignored.

        Args:
            now: Unix seconds of the run's clock.
        """
        ...


class PagesPlugin(Plugin, Protocol):
    """A plugin that serves HTTP pages on the leader."""

    def pages(self) -> Mapping[str, PageAnswer]:
        """Return path below `/apis/v1/plugins/<name>/` -> function that answers it. `{part}` marks a path parameter."""
        ...
