"""Run the colocation profile controller on the leader: apply managed profiles to waiting pods.

Pods are patched at the API server, or changed in the log if there is none.

Source:
    manager spec, 8.5
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec
from koordcore.events.envelope import AggregateRef, Draft, Origin
from koordcore.events.objects import PodSpecChanged
from koordcore.ports.eventlog import Appended, Conflict, Full, Unavailable, Unsendable
from koordcore.protocol.manifests import InvalidManifest, check_update
from koordcore.protocol.objects import Pod, pod_from_json
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.admission.context.profiles import ColocationProfile
from koord_manager.domain.controller_names import COLOCATION_PROFILE
from koord_manager.domain.controllers.colocation_profiles import (
    ProfileUpdates,
    is_wanted,
    managed_profiles,
    reconciled_pod,
    waiting_pods,
)
from koord_manager.domain.documents.admitting import pod_document
from koord_manager.shell.appender import Decision, NotAppended, append_each
from koord_manager.shell.context import ManagerContext, reached, reason_not_to_decide
from koord_manager.shell.gateway.api import ApiResponse, Unreachable
from koord_manager.shell.reconcile import LogFull, pause_while_full
from koord_manager.shell.webhooks.quota_gate import ObjectsApi

PODS_AT_ONCE: Final = 500
"""Pods checked before other tasks run."""
CONFLICTS: Final = 3
"""Maximum number of attempts to patch one pod."""
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


class _NotStored(Exception):
    """The log did not store a change: somebody else changed the pod, or the log does not answer."""

    def __init__(self, reason: str, *, is_away: bool = False) -> None:
        super().__init__(reason)
        self.is_away = is_away  # Whether the log does not answer, so that each further pod would wait for it as long


class NotPatched(Exception):
    """A pod cannot be changed now, so that it is tried again after a back-off."""

    def __init__(self, reason: str, *, is_away: bool = False) -> None:
        super().__init__(reason)
        # Whether the API server does not answer, so that each further pod would wait for it as long.
        self.is_away = is_away


async def run_profile_controller(
    context: ManagerContext,
    updates: ProfileUpdates,
    api: ObjectsApi | None,
    steady: Callable[[], float],
    *,
    interval: float,
    by_default: bool,
) -> None:
    """Apply managed colocation profiles to waiting pods every `interval` seconds while this instance leads.

    While the log is full, it is tried again after 1, 2, 4 ... `FULL_SECONDS`.

    Args:
        steady: Returns the seconds of a monotonic clock.
    """
    while True:
        await asyncio.sleep(interval)
        if await reason_not_to_decide(context) is not None:
            continue
        context.view.queue.begin(context.clock.now().timestamp())
        if context.view.queue.is_backing_off(COLOCATION_PROFILE, ""):
            continue
        try:
            await reconcile_profiles(context, updates, api, steady, by_default=by_default)
            context.view.queue.forget(COLOCATION_PROFILE, "")
        except LogFull as full:
            pause_while_full(context, COLOCATION_PROFILE, full)
        except Exception as error:
            context.logger.error("profile_round_failed", error=f"{type(error).__name__}: {error}", exc_info=error)


async def reconcile_profiles(
    context: ManagerContext,
    updates: ProfileUpdates,
    api: ObjectsApi | None,
    steady: Callable[[], float],
    *,
    by_default: bool = False,
) -> int:
    """Apply the managed colocation profiles to waiting pods once, and return the number of changed pods.

    If the log is full or does not answer, the round ends, and its other pods are the first ones of the next round. The
    same holds if the API server does not answer. A pod that somebody else changes meanwhile is looked at again in the
    next round. A pod that cannot be changed is tried again after 1, 2, 4 ... 300 seconds.

    Args:
        updates: Earlier updates and the rate limit.
        api: Client of the API server, or None if there is none; then pods are changed in the log.

    Raises:
        LogFull: The log is full.
    """
    facts = context.view.admission
    queue, refused = context.view.queue, context.logger.warning
    profiles = managed_profiles(facts, by_default=by_default)
    updates.begin(steady())
    queue.begin(context.clock.now().timestamp())
    changed = 0
    pods = dict(waiting_pods(context.view)) if profiles else {}
    queue.resync(COLOCATION_PROFILE, pods)
    uids = queue.take(COLOCATION_PROFILE)
    for number, uid in enumerate(uids):
        if number % PODS_AT_ONCE == PODS_AT_ONCE - 1:
            await asyncio.sleep(0)
        if context.leadership.term is None or not updates.has_room(steady()):
            queue.add_all(COLOCATION_PROFILE, uids[number:])  # the first ones of the next interval
            break
        pod, failed = pods.get(uid), False
        for profile in profiles:
            if pod is None:
                break
            try:
                if not updates.is_due(profile, uid, steady()) or not is_wanted(profile, uid, pod, facts):
                    continue
                if not updates.take(profile, uid, steady()):
                    queue.add(COLOCATION_PROFILE, uid)
                    break
                changed += await _change(context, uid, pod, profile, api)
            except (LogFull, _NotStored) as error:
                updates.give_back(profile, uid)
                if isinstance(error, _NotStored) and not error.is_away:
                    break
                queue.add_all(COLOCATION_PROFILE, uids[number:])
                if isinstance(error, LogFull):
                    raise
                refused("profile_not_applied", profile=profile.name, pod_uid=uid, reason=str(error))
                return changed
            except Exception as error:
                failed = True
                updates.failed(profile, uid)
                if isinstance(error, NotPatched):
                    refused("profile_not_applied", profile=profile.name, pod_uid=uid, reason=str(error))
                    if error.is_away:
                        queue.add_rate_limited(COLOCATION_PROFILE, uid)
                        queue.add_all(COLOCATION_PROFILE, uids[number + 1 :])
                        return changed
                elif isinstance(error, InvalidInput):
                    refused("profile_not_applied", profile=profile.name, pod_uid=uid, reason=error.sentence())
                else:
                    reason = f"{type(error).__name__}: {error}"
                    context.logger.error(
                        "profile_not_applied", profile=profile.name, pod_uid=uid, reason=reason, exc_info=error
                    )
        if failed:
            queue.add_rate_limited(COLOCATION_PROFILE, uid)
        else:
            queue.forget(COLOCATION_PROFILE, uid)
    if changed:
        context.logger.info("profiles_applied", pods=changed)
    return changed


async def _change(
    context: ManagerContext, uid: str, pod: Pod, profile: ColocationProfile, api: ObjectsApi | None
) -> int:
    if api is not None:
        return await patch_waiting_pod(context, pod, profile, api)
    spec = context.view.pod(pod.metadata.namespace, pod.metadata.name)
    if spec is None or spec[0] != uid:
        return 0
    present = spec[1].object  # with what a profile before this one made of it
    after = reconciled_pod(pod_document(present), profile, context.view.admission)
    if after is None:
        return 0
    changed = pod_from_json(after)
    try:
        check_update(changed.spec, present.spec)
    except InvalidManifest as refused:
        raise NotPatched(str(refused)) from refused
    draft = Draft(AggregateRef("podspec", uid), PodSpecChanged(object=changed), spec[1].seq)
    term = context.leadership.term
    origin = Origin(
        causation_id=f"profile/{profile.name}/{profile.version}/{uid}/{spec[1].seq}",
        correlation_id=uid,
        actor=context.actor,
        epoch=term.epoch if term else 0,
        occurred_at=rfc3339(context.clock.now()),
        based_on=context.view.state.position,
    )
    (outcome,) = await append_each(context.log, [Decision([draft], origin)])
    if isinstance(outcome, NotAppended):
        if not isinstance(outcome.error, Unsendable):
            raise outcome.error
        raise NotPatched(str(outcome.error)) from outcome.error
    match outcome:
        case Full(reason=reason):
            raise LogFull(reason)
        case Unavailable(reason=reason):
            raise _NotStored(reason, is_away=True)
        case Appended() | Conflict():
            await context.folded(reached(outcome))
    if isinstance(outcome, Conflict):
        raise _NotStored("somebody else changed the pod")
    return 1


async def patch_waiting_pod(context: ManagerContext, pod: Pod, profile: ColocationProfile, api: ObjectsApi) -> int:
    """Apply a colocation profile to a pod at the API server. Return 1 if the pod changed, otherwise 0.

    After a conflict, the pod is read and patched again, up to three times in all. A pod that does not exist or has a
    node by now is not changed.

    Raises:
        NotPatched: The API server refuses the patch or does not answer.
    """
    path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
    reason = ""
    for _ in range(CONFLICTS):
        try:
            answer = await _patch_once(context, path, profile, api)
        except Unreachable as error:
            raise NotPatched(str(error), is_away=True) from error
        except codec.DecodeError as error:
            raise NotPatched(f"{path}: {error}") from error
        if answer is None or answer.status == _NOT_FOUND:
            return 0
        if answer.ok:
            return 1
        reason = f"{path}: {answer.status} {answer.message()}"  # immutable fields, for one
        if answer.status != _CONFLICT:
            break
    raise NotPatched(reason)


async def _patch_once(
    context: ManagerContext, path: str, profile: ColocationProfile, api: ObjectsApi
) -> ApiResponse | None:
    """Patch a pod once and return the response, or None if nothing has to be changed.

    The whole pod is read first, because the log has only a part of it and a merge patch replaces lists. If it cannot be
    read, the response to the read is returned.
    """
    answer = await api.request("GET", path)
    if not answer.ok:
        return answer
    document: dict[str, Any] = codec.decode(answer.body, dict[str, Any])
    if msgspec.convert(document.get("spec") or {}, dict[str, Any]).get("nodeName"):
        return None
    after = reconciled_pod(document, profile, context.view.admission)
    if after is None:
        return None
    change = _preconditioned(merge_patch(document, after), document)
    return await api.request("PATCH", path, body=change, content_type="application/merge-patch+json")


def _preconditioned(change: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return the patch with the resource version that was read, so that a change in between is a conflict."""
    version = document["metadata"].get("resourceVersion")
    return {**change, "metadata": {**change.get("metadata", {}), "resourceVersion": version}} if version else change


def merge_patch(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    change: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        if name not in before or before[name] != value:
            both = isinstance(value, dict) and isinstance(before.get(name), dict)
            change[name] = merge_patch(before[name], cast("dict[str, Any]", value)) if both else value
    return change
