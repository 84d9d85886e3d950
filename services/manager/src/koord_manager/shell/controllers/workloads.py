"""Controllers of a cluster without an API server, for workloads and volumes.

They create and delete the pods of workloads, bind claims, make volumes and free them.
"""

from datetime import datetime
from typing import Final

from koordcore.events.envelope import Draft
from koordcore.protocol.manifests import InvalidManifest
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.controller_names import VOLUME_CLAIM, WORKLOAD
from koord_manager.domain.controllers import Controllers
from koord_manager.domain.standalone.volume_claims import volume_drafts
from koord_manager.domain.standalone.workload_replicas import reconcile_workload
from koord_manager.shell.context import ManagerContext
from koord_manager.shell.reconcile import reconcile


async def bind_claims(context: ManagerContext, _: Controllers, now: datetime) -> int:
    """Bind claims to volumes, make volumes, and free those of deleted claims. Return the number of changed objects.

    No-op with an API server, whose controllers do this.
    """
    keys = context.view.queue.take(VOLUME_CLAIM)
    if not context.standalone:
        return 0

    def decide(key: str) -> list[list[Draft]]:
        drafts = volume_drafts(context.view, key, now=rfc3339(now))
        return [drafts] if drafts else []

    return len(await reconcile(context, VOLUME_CLAIM, keys, decide, now))


MAX_PODS_PER_CYCLE: Final = 500


async def reconcile_workloads(context: ManagerContext, _: Controllers, now: datetime) -> int:
    """Create and delete pods of queued workloads, at most `MAX_PODS_PER_CYCLE`, and return the number of pods."""
    view, queue = context.view, context.view.queue
    room = MAX_PODS_PER_CYCLE

    def decide(uid: str) -> list[list[Draft]] | None:
        nonlocal room
        if room <= 0:
            queue.add(WORKLOAD, uid)
            return None
        try:
            groups = reconcile_workload(view, uid, now=rfc3339(now), limit=room, options=context.options)
        except InvalidManifest as refused:
            # retried with back-off, and at once if a profile, quota, priority class or namespace changes
            if queue.add_rate_limited(WORKLOAD, uid)[2]:
                context.logger.warning("workload_not_admitted", uid=uid, reason=str(refused))
            return None
        if groups:
            room -= sum(map(len, groups))
            queue.add(WORKLOAD, uid)  # pods may be missing still
        return groups

    stored = await reconcile(context, WORKLOAD, queue.take(WORKLOAD), decide, now)
    return sum(draft.ref.kind == "podspec" for draft in stored)
