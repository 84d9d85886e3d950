"""What a plugin may do beside choosing nodes: write on bound pods, hear of failures, control, answer questions.

source    scheduler-core spec, 1 (steps 14 and failure handler), 3 (PreBindExtensions, error handler filters,
          controllers, plugin HTTP endpoints)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from koord_scheduler.domain.framework.plugin import Plugin
from koord_scheduler.domain.pods.record import PodRecord

Answer: TypeAlias = Callable[[Mapping[str, str]], object]
"""From the parts of a path and the query, by name, to a JSON value; None: there is no such thing."""


class PreBindPlugin(Plugin, Protocol):
    """Writes on pods that are bound; what all plugins of the point preBind write goes in one binding."""

    def pre_bind(self, pod: PodRecord, node: str) -> Mapping[str, str]:
        """Annotation -> text; of two that write the same the later in the order of the point holds, and then a gang."""
        ...


class BeforeFailurePlugin(Plugin, Protocol):
    """Comes before the scheduler's own handling of a failed attempt; any plugin of the profile may."""

    def before_failure(self, pod: PodRecord, message: str) -> bool:
        """Whether the failure is dealt with: then the pod's user is told nothing, and no other plugin is asked.

        The pod waits for another attempt all the same.
        """
        ...


class AfterFailurePlugin(Plugin, Protocol):
    """Hears of every failed attempt after it was handled; any plugin of the profile may."""

    def after_failure(self, pod: PodRecord, message: str) -> None:
        """The pod found no node, or may not keep the one that it had not gone to yet."""
        ...


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that is to leave its node, as far as disruption budgets allow. message: what its user is told"""

    uid: str
    message: str


class ControllerPlugin(Plugin, Protocol):
    """Does something from time to time, whatever is scheduled: on the leader, if `--controller-plugins` names it."""

    @property
    def control_seconds(self) -> float:
        """At least so long between two rounds, and at least a second."""
        ...

    def control(self, now: float) -> Sequence[Eviction]:
        """One round at `now`, in unix seconds; who is to leave.

        Pods without a node, and those that are being evicted, are passed over.
        """
        ...


class PagesPlugin(Plugin, Protocol):
    """Answers over HTTP, on the leader."""

    def pages(self) -> Mapping[str, Answer]:
        """Path below `/apis/v1/plugins/<name>/`, with `{part}` for what varies, and who answers."""
        ...
