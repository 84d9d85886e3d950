"""Details that a cross-node filter gives about a refusal, for diagnoses only."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from koord_scheduler.domain.columns.node_columns import Rows
from koord_scheduler.domain.pods.kinds import PodKind

MOST_DETAILS = 5
"""Maximum number of domains to name for one reason."""


class Detail(NamedTuple):
    """One domain that was refused.

    Attributes:
        text: "topology.kubernetes.io/zone=a: ..."; "{pod}" stands for the pod that is looked for.
        row: Node that the pod runs on, -1: no pod is looked for.
        is_it: Whether a pod on that node is it.
    """

    text: str
    row: int = -1
    is_it: Callable[[PodKind], bool] = lambda _: False


@runtime_checkable
class DetailedFilter(Protocol):
    """A cross-node filter that gives details."""

    def details(self, rows: Rows, reason: str) -> list[Detail]:
        """Return at most `MOST_DETAILS` details, by domain, about rows that it refuses for the reason, shape (K,)."""
        ...
