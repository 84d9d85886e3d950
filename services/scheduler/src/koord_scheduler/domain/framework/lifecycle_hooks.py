"""What a plugin may do beside choosing nodes: write on bound pods, hear of failures, control, answer questions.

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
"""From the parts of a path and the query, by name, to a JSON value. None, or NotFound, is answered with 404."""


class NotFound(Exception):
    """What a page is asked for does not exist; its text is the answer."""


class PreBindPlugin(Plugin, Protocol):
    """Writes annotations on pods that are bound; what all plugins write goes into one binding."""

    def pre_bind(self, pod: PodRecord, node: str) -> Mapping[str, str]:
        """Return annotation -> text. Of two plugins that write the same annotation the later one wins."""
        ...


class BeforeFailurePlugin(Plugin, Protocol):
    """Comes before the scheduler's own handling of a failed attempt."""

    def before_failure(self, pod: PodRecord, message: str) -> bool:
        """Return whether the failure is dealt with: then the user is told nothing, and no other plugin is asked.

        The pod waits for another attempt in any case.
        """
        ...


class AfterFailurePlugin(Plugin, Protocol):
    """Hears of every failed attempt after it was handled."""

    def after_failure(self, pod: PodRecord, message: str) -> None:
        """Take note that the pod found no node, or may not keep the one that it had not gone to yet."""
        ...


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that is to leave its node, as far as disruption budgets allow.

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
    """A status that is to be published as an event, if it differs from what was published last.

    Attributes:
        ref: The aggregate.
        event: Its status.
    """

    ref: AggregateRef
    event: Event


class ControllerPlugin(Plugin, Protocol):
    """Does something from time to time on the leader, if `--controller-plugins` names it."""

    def control_due(self) -> float | None:
        """Return when `control` has something to do, in unix seconds of the run's clock; None: not before an event.

        The scheduler leaves at least a second between two calls.
        """
        ...

    def control(self, now: float) -> Sequence[Eviction | Status]:
        """Return the pods that are to leave their nodes, and the statuses that are to be published.

        Pods without a node, and those that are being evicted, are passed over.

        Args:
            now: Unix seconds of the run's clock.
        """
        ...


class PagesPlugin(Plugin, Protocol):
    """Answers over HTTP, on the leader."""

    def pages(self) -> Mapping[str, PageAnswer]:
        """Return path below `/apis/v1/plugins/<name>/`, with `{part}` for what varies -> who answers."""
        ...
