"""The hash of the manager's fold, for `koord verify`: over HTTP (`api`), and over the log (`object_changes`)."""

import asyncio

from koordcore.requests.catalogue import StateHash
from koordcore.values.codec import PIECE

from koord_manager.domain.cluster.view import ManagerView


async def hash_of(view: ManagerView) -> StateHash:
    """Return the position and the hash of the fold. The digests that the hash needs are computed in pieces."""
    is_complete = False
    while not is_complete:
        is_complete = view.state.digest_some(PIECE)
        await asyncio.sleep(0)
    return StateHash(view.state.position, view.state.hash())
