"""The DrainNodes of the cluster, and those that close nodes now or will close them."""

from typing import Any, Final

from koordcore.protocol.drains import ConfirmState

from koordctl.access.clients import manager
from koordctl.render.output import field

ENDED_PHASES: Final = ("Complete", "Aborted")
_GIVEN_UP: Final = (ConfirmState.ABORTED, ConfirmState.REJECTED)


def drains() -> list[dict[str, Any]]:
    """Return all DrainNodes, as the manager has them."""
    items: list[dict[str, Any]] = manager.get("/v1/objects/DrainNode")["items"]
    return items


def running_drains() -> dict[str, str]:
    """Return name of a node -> name of the DrainNode that closes it now or will close it."""
    return {
        str(field(item, "spec.nodeName", "")): str(field(item, "metadata.name"))
        for item in drains()
        if not is_over(item)
    }


def is_over(stored: dict[str, Any]) -> bool:
    """Return whether a DrainNode does nothing more for its node."""
    phase = field(stored, "status.phase", "Pending")
    never_begins = phase == "Pending" and field(stored, "spec.confirmState") in _GIVEN_UP
    return phase in ENDED_PHASES or never_begins
