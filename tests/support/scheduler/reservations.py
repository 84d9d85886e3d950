"""Reservations for tests of the scheduler, and a scheduler that also publishes how they end."""

from typing import Any

from koord_scheduler.domain.loop.controllers import status_facts
from koordcore.events.objects import CustomObjectDeleted, CustomObjectObserved, custom_ref
from koordcore.protocol.reservation_status import ReservationStatus
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodeLedger
from koordcore.state.reservations import reservation_of_log, unused_amounts
from koordcore.values.allocation import is_reservation
from support.scheduler.scheduling import Scheduler, SmallLog

CREATED = "2026-01-01T00:00:00Z"


def reservation(
    name: str = "r",
    requests: dict[str, str] | None = None,
    *,
    owners: list[dict[str, Any]] | None = None,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    template: dict[str, Any] | None = None,
    created: str = CREATED,
    **spec: Any,
) -> dict[str, Any]:
    """A Reservation for pods labelled `app: web`; `template` are further fields of the template's spec."""
    container = {"name": "main", "resources": {"requests": requests or {"cpu": "2", "memory": "2Gi"}}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": created,
            "annotations": annotations or {},
            "labels": labels or {},
        },
        "spec": {
            "template": {"spec": {"schedulerName": "koord-scheduler", "containers": [container], **(template or {})}},
            "owners": owners if owners is not None else [{"labelSelector": {"matchLabels": {"app": "web"}}}],
            "ttl": "24h",
            **spec,
        },
    }


def reserve(log: SmallLog, document: dict[str, Any]) -> None:
    """Apply a Reservation."""
    ref = custom_ref("reservations", "", document["metadata"]["name"])
    log.say(ref.kind, ref.id, CustomObjectObserved(object=document))


def unreserve(log: SmallLog, name: str) -> None:
    """Delete a Reservation."""
    ref = custom_ref("reservations", "", name)
    log.say(ref.kind, ref.id, CustomObjectDeleted(kind="Reservation", name=name))


class ReservingScheduler(Scheduler):
    """A scheduler whose controllers run, too."""

    def live(self, now: float = 0.0) -> None:
        """Run until nothing is left to do or to publish."""
        for _ in range(8):
            self.run(now)
            self.state.status.due.next_control.clear()
            for write in status_facts(self.state, now):
                self.state.status.writes.put(write)
            if not len(self.state.status.writes) and not len(self.state.assumed.outbox):
                return
        raise AssertionError("the controllers do not come to rest")


def fold_of(log: SmallLog) -> ClusterState:
    """The fold of the whole log."""
    state = ClusterState()
    for stored in log.events:
        state.apply(stored)
    return state


def status(log: SmallLog, name: str = "r") -> ReservationStatus:
    """The status of a Reservation by the log."""
    return reservation_of_log(fold_of(log), f"uid-{name}")


def sums(ledger: NodeLedger) -> dict[str, int]:
    """What the node has given: its pods, and the unused rests of its Reservations and of pods that act as such."""
    total: dict[str, int] = {}
    parts: list[dict[str, int]] = []
    for uid, entry in ledger.pods.items():
        if not is_reservation(uid, entry.allocation):
            uses = [used for each in ledger.pods.values() if (used := each.allocation.reservation) and used.uid == uid]
            taken = {name: sum(used.amounts.get(name, 0) for used in uses) for name in entry.requests}
            parts.append({name: max(0, amount - taken[name]) for name, amount in entry.requests.items()})
    for part in (*parts, *unused_amounts(ledger.pods).values()):
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return {name: amount for name, amount in total.items() if amount}
