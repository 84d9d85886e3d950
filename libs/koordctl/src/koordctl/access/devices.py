"""Devices of the nodes with their holders, from the projector, now or at a past moment."""

from typing import Any

from koordcore.values import codec

from koordctl.access.clients import projector
from koordctl.access.past import ask_as_of, moment_text
from koordctl.render.device_tables import NodeDevices

PAGE = 500


def devices_of(node: str | None, as_of: str | None) -> list[NodeDevices]:
    """Return the nodes that have a Device object, with their devices and the pods that hold them, ordered by name.

    If the projector does not accept the moment, end the command.

    Args:
        node: Only this node; None for all.
        as_of: Position of the log, or RFC 3339 time; None for the present.
    """
    found: list[NodeDevices] = []
    after: str | None = ""
    at = "" if as_of is None else moment_text(as_of)
    while after is not None:
        asked: dict[str, object] = {"after": after, "limit": PAGE}
        page: dict[str, Any] = ask_as_of("/api/devices", at, **asked) if at else projector.get("/api/devices", asked)
        # A time is resolved once: every page shows the same position.
        at = str(page["moment"]["position"]) if at else ""
        found += codec.convert(page["nodes"], list[NodeDevices])
        after = page["after"]
    return [each for each in found if node in (None, each.node)]
