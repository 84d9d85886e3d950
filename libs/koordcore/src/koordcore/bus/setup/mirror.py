"""A mirror of the stream of facts on a server of another domain, which can take the place of the first servers.

    first servers --(the server of the mirror connects as the user `mirror`)--> mirror     positions stay the same
    first servers are lost: the mirror becomes the stream of facts, and services use its server

Source: event-bus spec, 9.3 (mirror).
"""

import json
from typing import Any, Final

from koordcore.bus.client.connection import BusConnection
from koordcore.bus.read.stream_reader import patient_api, stream_info
from koordcore.bus.setup.bootstrap import require_version
from koordcore.bus.setup.principals import MAIN_DOMAIN, MIRROR_DELIVERY
from koordcore.bus.setup.streams import StreamSpec

# A mirror that has heard of the first servers within this time is not promoted. It hears of them every second.
ALIVE_SECONDS: Final = 5.0
_NO_MIRROR_HAS: Final = ("subjects", "republish", "allow_atomic")


class NotPromotable(Exception):
    """The stream is not a mirror, or the servers that it mirrors are still alive."""


async def create_mirror(connection: BusConnection, facts: StreamSpec) -> None:
    """Create the mirror of a stream of facts on its server. If it exists, nothing is changed. `connection`: connection
    of the user `bootstrap` to the server of the mirror.

    Raises:
        ServerTooOld: The version of the server is not supported.
        ApiError: The server refused: too little space, or it has another stream of this name.
        NoAnswer: No answer came in time.
    """
    require_version(connection.server_version)
    config = {field: value for field, value in facts.config().items() if field not in _NO_MIRROR_HAS}
    external = {"api": f"$JS.{MAIN_DOMAIN}.API", "deliver": MIRROR_DELIVERY}
    config["mirror"] = {"name": facts.name, "external": external}
    await patient_api(connection, f"$JS.API.STREAM.CREATE.{facts.name}", json.dumps(config).encode())


async def promote_mirror(connection: BusConnection, facts: StreamSpec) -> int:
    """Turn a mirror into the stream of facts, and return the position of its last fact. `connection`: connection of the
    user `bootstrap` to the server of the mirror.

    Raises:
        NotPromotable: The stream is not a mirror, or the servers that it mirrors are still alive.
        ApiError: The server refused.
        NoAnswer: No answer came in time.
    """
    info = await stream_info(connection, facts.name, patient_api)
    mirror = None if info is None else info.get("mirror")
    if info is None or mirror is None:
        raise NotPromotable(f"{facts.name} on this server is not a mirror")
    if (silent := silent_seconds(mirror)) is not None and silent < ALIVE_SECONDS:
        raise NotPromotable(
            f"the mirror heard of the first servers {silent:.0f} s ago: stop them, so that two logs do not go on"
        )
    config = {**facts.config(), "max_bytes": max(facts.max_bytes, info["config"]["max_bytes"])}
    await patient_api(connection, f"$JS.API.STREAM.UPDATE.{facts.name}", json.dumps(config).encode())
    return int(info["state"]["last_seq"])


def silent_seconds(mirror: dict[str, Any]) -> float | None:
    """Return the time since a mirror has heard of the first servers, in seconds. None: never. `mirror`: the part
    `mirror` of the server's answer about the stream.
    """
    return None if mirror["active"] < 0 else mirror["active"] / 1e9
