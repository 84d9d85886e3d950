"""Tell a server that stores nothing from one that is slow or away, after an append without an answer.

A single nats-server whose write has failed, for example on a full disk, gives no answer to an append until it is
restarted (`koordcore.embedded.nats`). It still refuses an append with a wrong expectation. Messages of one connection
to one stream are processed in order. So such a refusal shows that the append before it was processed, too.
"""

from typing import Final

from koordcore.bus.client.connection import BusConnection, NoAnswer, NotConnected
from koordcore.bus.write.outcome import Action, classify, read_answer
from koordcore.events.envelope import HEADER_EXPECTED_LAST

STORES_NOTHING: Final = (
    "the server refuses appends and stores none: its disk is full, or was; free space, and restart nats-server"
)
_IMPOSSIBLE: Final = f"{HEADER_EXPECTED_LAST}: {(1 << 62) + 1}\r\n".encode()


async def refuses(connection: BusConnection, subject: str, seconds: float) -> bool:
    """Return whether the server refuses an append that expects a position which no aggregate has. Nothing is stored.

    False if there is no answer within `seconds`, or if the server is one of a cluster: there, appends also get no
    answer while too few servers store them.

    Raises:
        Denied: The user may not append to the subject.
    """
    if connection.is_clustered:
        return False
    try:
        reply = await connection.request(subject, header=_IMPOSSIBLE, timeout=seconds)
    except (NoAnswer, NotConnected):
        return False
    return classify(read_answer(reply.data)).action is Action.READ_BACK
