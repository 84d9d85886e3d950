"""`koord cordon` and `koord uncordon`: close nodes for new pods, and open them again."""

from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from koordcore.protocol.drains import DRAIN_NODE, NODE_PLANNING, ConfirmState
from koordcore.protocol.objects import Taint
from koordcore.requests.objects import ChangeNode, ChangeResult
from koordcore.service.process_user import user_at_host
from koordcore.stories.acts import signature
from koordcore.values.timestamps import rfc3339

from koordctl.access.clients import manager
from koordctl.access.log import wait_for
from koordctl.access.requests import change_objects
from koordctl.objects.kinds import name_of_kind
from koordctl.render.output import errors, field, say_error, write_line

ENDED_PHASES: Final = ("Complete", "Aborted")
_GIVEN_UP: Final = (ConfirmState.ABORTED, ConfirmState.REJECTED)
_DRAINED: Final = Taint(key=DRAIN_NODE, effect="NoSchedule")
"""The taint that a drain leaves when it is Complete (descheduler spec, 11.2)."""
Nodes = Annotated[list[str], typer.Argument(help="Names of nodes.")]


def drains() -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = manager.get("/v1/objects/DrainNode")["items"]
    return items


def running_drains() -> dict[str, str]:
    """Name of a node -> name of the DrainNode that closes it now or will close it."""
    return {
        str(field(item, "spec.nodeName", "")): str(field(item, "metadata.name"))
        for item in drains()
        if not is_over(item)
    }


def is_over(stored: dict[str, Any]) -> bool:
    """Whether a DrainNode does nothing more for its node."""
    phase = field(stored, "status.phase", "Pending")
    never_begins = phase == "Pending" and field(stored, "spec.confirmState") in _GIVEN_UP
    return phase in ENDED_PHASES or never_begins


def cordon(node: Nodes) -> None:
    """Close nodes for new pods. Pods that run there stay.

    Examples:

      koord cordon node-1

      koord cordon node-1 node-2
    """
    _change(_names(node), unschedulable=True)


def uncordon(node: Nodes) -> None:
    """Open nodes for new pods again, also nodes that a drain has emptied. A running drain still keeps pods away.

    Other taints of a node stay, and so do the labels of a drain whose policy closes nodes by labels.

    Examples:

      koord uncordon node-1
    """
    _change(_names(node), unschedulable=False)


def _names(words: list[str]) -> list[str]:
    return [name_of_kind(word, "Node") for word in words]


def _change(names: list[str], *, unschedulable: bool) -> None:
    """Print one line per node. End with status 1 if one does not exist.

    A node that is opened also loses what a drain has left on it, unless a drain still runs there.
    """
    by = signature(user_at_host(), rfc3339(datetime.now(UTC)))
    drains = {} if unschedulable else running_drains()
    changes = [
        ChangeNode(name=name, unschedulable=unschedulable, annotations=by)
        if unschedulable or name in drains
        else ChangeNode(
            name=name,
            unschedulable=False,
            annotations=by,
            labels={NODE_PLANNING: None},
            removed_taints=[_DRAINED],
        )
        for name in names
    ]
    failed = False
    for name, outcome in zip(names, wait_for(change_objects(changes)), strict=True):
        if outcome.result is ChangeResult.DONE:
            write_line(f"node/{name} {'cordoned' if unschedulable else 'uncordoned'}")
            if drain := drains.get(name):
                errors.print(f"drainnode/{drain} still keeps new pods away; to end it: koord drain {name} --abort")
        else:
            failed = True
            is_gone = outcome.result is ChangeResult.ABSENT
            say_error(f"node {name} does not exist" if is_gone else f"node {name}: {outcome.message}")
    if failed:
        raise typer.Exit(1)
