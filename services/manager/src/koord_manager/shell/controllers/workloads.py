"""The workload controller of a cluster without an API server: create and delete the pods of workloads."""

from datetime import datetime
from typing import Final

from koordcore.events.envelope import Draft
from koordcore.protocol.manifests import InvalidManifest
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.controller_names import WORKLOAD
from koord_manager.domain.controllers import Controllers
from koord_manager.domain.standalone.workload_replicas import reconcile_workload
from koord_manager.shell.context import ManagerContext
from koord_manager.shell.reconcile import reconcile

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
