"""Read the newest message of a subject from any replica of its stream, for processes that may not ask the leader."""

from typing import Final

from koordcore.bus.client.connection import BusConnection, NoAnswer
from koordcore.bus.client.wire import Reply, decode_headers

_SEQUENCE: Final = "Nats-Sequence"
_NOT_FOUND: Final = "404"


async def newest_of(
    connection: BusConnection, stream: str, subject: str, *, deadline: float
) -> tuple[dict[str, str], bytes] | None:
    """Return headers and body of the newest message of a subject; None if there is none. The answer may be old.

    Args:
        connection: The connection of the process.
        stream: Name of the stream. It must allow direct gets.
        subject: The subject.
        deadline: Real seconds after which no further attempt is made.

    Raises:
        NoAnswer: No replica has answered with a message, or with its absence, within the deadline.
        Denied: The user may not read the subject.
    """

    async def once() -> tuple[dict[str, str], bytes] | None:
        reply: Reply = await connection.request(f"$JS.API.DIRECT.GET.{stream}.{subject}")
        headers = decode_headers(reply.header) if reply.header else {}
        if headers.get("Status") == _NOT_FOUND:
            return None
        if _SEQUENCE not in headers:
            raise NoAnswer(f"{subject}: {headers.get('Status', '')} {headers.get('Description', 'no message')}".strip())
        return headers, reply.data

    return await connection.patiently(once, subject, deadline=deadline)
