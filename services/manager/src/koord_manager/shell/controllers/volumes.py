"""The volume controller of a cluster without an API server: bind claims, make volumes, free them."""

from datetime import datetime

from koordcore.events.envelope import Draft
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.controller_names import VOLUME_CLAIM
from koord_manager.domain.controllers import Controllers
from koord_manager.domain.standalone.volume_claims import volume_drafts
from koord_manager.shell.context import ManagerContext
from koord_manager.shell.reconcile import reconcile


async def bind_claims(context: ManagerContext, _: Controllers, now: datetime) -> int:
    """Bind claims to volumes, make volumes, and free those of deleted claims. Return the number of changed objects.

    Not called with an API server, whose controllers do this.
    """
    keys = context.view.queue.take(VOLUME_CLAIM)

    def decide(key: str) -> list[list[Draft]]:
        drafts = volume_drafts(context.view, key, now=rfc3339(now))
        return [drafts] if drafts else []

    return len(await reconcile(context, VOLUME_CLAIM, keys, decide, now))
