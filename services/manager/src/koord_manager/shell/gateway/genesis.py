"""Carry out `koord bus genesis`: list the API server and write the first facts of a log.

First it checks that the stream is empty, or holds the facts of the same interrupted genesis. Then it lists every
resource and appends the facts; repeated events have the same ids. At last it increments the epoch in the ConfigMap
`koordstream-cluster`, so that services with an older log do not lead. If only this last step is missing, a repeated
call carries out this step alone. All services have to be stopped.

Source:
    event-bus spec, 9.3
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from koordcore.events import CATALOGUE
from koordcore.events.envelope import Draft, Origin, StoredEvent
from koordcore.events.gateway import GENESIS, GenesisRecorded
from koordcore.ports.clock import Clock
from koordcore.ports.eventlog import Appended, EventLog, TooLarge
from koordcore.protocol.objects import ConfigMap
from koordcore.values import codec
from koordcore.values.timestamps import rfc3339

from koord_manager.domain.gateway.genesis import EPOCH_CONFIG_MAP, genesis_drafts
from koord_manager.domain.gateway.mirror import Seen
from koord_manager.domain.gateway.requests import MERGE_PATCH
from koord_manager.domain.gateway.resources import Intake, Mirrored
from koord_manager.shell.gateway.api import ApiResponse, KubernetesApi
from koord_manager.shell.gateway.reading import RequestRefused, list_pages

BATCH: Final = 200
_TOO_MANY_DIGITS: Final = 19
"""Number of digits from which an epoch is none that a genesis has written."""

Progress = Callable[[str], Awaitable[None]]


class GenesisRefused(Exception):
    """Raised if genesis is not possible; the message gives the reason in a sentence."""


async def cluster_epoch(api: KubernetesApi, namespace: str) -> int:
    """Return the epoch of the cluster (the number of its log) from a ConfigMap, or 0 before the first genesis.

    Raises:
        GenesisRefused: The ConfigMap cannot be read.
        Unreachable: The API server does not answer.
    """
    answer = await api.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/{EPOCH_CONFIG_MAP}")
    if answer.status == 404:
        return 0
    if not answer.ok:
        raise GenesisRefused(f"the ConfigMap {EPOCH_CONFIG_MAP} cannot be read: {answer.status} {answer.message()}")
    text = codec.decode(answer.body, ConfigMap).data.get("epoch", "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < _TOO_MANY_DIGITS else 0


async def genesis(
    api: KubernetesApi,
    log: EventLog,
    resources: tuple[Mirrored, ...],
    clock: Clock,
    *,
    namespace: str,
    actor: str,
    progress: Progress | None = None,
) -> int:
    """Write the first facts of the log from the objects of the API server, and return their number.

    After an interruption, call it again; facts that are stored already are not stored twice. If all facts are stored
    and the epoch is not, the result counts the stored facts.

    Args:
        namespace: Namespace of the ConfigMap with the epoch.
        actor: Writer to name in the facts.
        progress: Called with sentences about the progress, or None.

    Raises:
        GenesisRefused: The log is not empty, or the API server refused a request.
        Unreachable: The API server does not answer.
    """
    epoch = await cluster_epoch(api, namespace) + 1
    recorded = await log.last_of(GENESIS)
    if recorded is not None:
        _require_epoch(recorded, epoch)
        await _bump(api, namespace, epoch)
        if progress is not None:
            await progress(f"the log was complete; the cluster's epoch is {epoch}")
        return recorded.seq
    await _require_fresh(log, epoch)
    seen: list[Seen] = []
    for resource in resources:
        if resource.intake in (Intake.TYPED, Intake.CUSTOM, Intake.TRIMMED):
            seen += await _listed(api, resource)
            if progress is not None:
                await progress(f"{len(seen)} objects listed, up to {resource.name}")
    now = rfc3339(clock.now())
    written = 0
    batch: list[Draft] = []
    for draft in genesis_drafts(seen, cluster_epoch=epoch, now=now):
        batch.append(draft)
        if len(batch) == BATCH:
            written += await _append(log, batch, epoch, now, actor, progress)
            batch = []
    written += await _append(log, batch, epoch, now, actor, progress)
    await _bump(api, namespace, epoch)
    if progress is not None:
        await progress(f"{written} facts written; the cluster's epoch is {epoch}")
    return written


def _require_epoch(recorded: StoredEvent, epoch: int) -> None:
    """Raise GenesisRefused unless the recorded genesis is the one whose epoch is not stored yet."""
    event = CATALOGUE.read(recorded)
    ours = event.cluster_epoch if isinstance(event, GenesisRecorded) else 0
    if ours != epoch:
        raise GenesisRefused(
            f"the log has begun already, with epoch {ours} where {epoch} is next; genesis needs a fresh stream"
        )


async def _require_fresh(log: EventLog, epoch: int) -> None:
    head = await log.head()
    if head.last_seq == 0:
        return
    async for batch in log.history(0, 1, batch=1):
        if batch and batch[0].causation_id.startswith(f"genesis/{epoch}/"):
            return
    raise GenesisRefused(f"the log holds {head.last_seq} events of another origin; genesis needs a fresh stream")


async def _listed(api: KubernetesApi, resource: Mirrored) -> list[Seen]:
    try:
        pages = [page async for page in list_pages(api, resource)]
    except RequestRefused as refused:
        if refused.answer.status == 404:
            return []  # its CRD is not installed
        raise GenesisRefused(f"{resource.name} cannot be listed: {refused}") from refused
    except codec.DecodeError as error:
        raise GenesisRefused(f"{resource.name}: the answer is not a list: {error}") from error
    return [Seen(resource, item) for page in pages for item in page.objects]


async def _append(
    log: EventLog, batch: list[Draft], epoch: int, now: str, actor: str, progress: Progress | None
) -> int:
    """Append one batch and return how many of its facts the log holds; facts of an interrupted run are skipped."""
    events = [
        CATALOGUE.seal(
            [draft],
            Origin(
                causation_id=f"genesis/{epoch}/{draft.ref}", correlation_id=draft.ref.id, actor=actor, occurred_at=now
            ),
        )[0]
        for draft in batch
    ]
    if not events:
        return 0
    with contextlib.suppress(TooLarge):
        if isinstance(await log.append(events), Appended):
            return len(events)
    written = 0
    for event in events:
        try:
            outcome = await log.append([event])
        except TooLarge as error:
            if progress is not None:
                await progress(f"left out, as the mirror leaves it out, too: {error}")
            continue
        if not isinstance(outcome, Appended) and await log.last_of(event.ref) is None:
            raise GenesisRefused(f"the log refused {event.ref}: {outcome}")
        written += 1
    return written


async def _bump(api: KubernetesApi, namespace: str, epoch: int) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": EPOCH_CONFIG_MAP, "namespace": namespace},
        "data": {"epoch": str(epoch)},
    }
    answer: ApiResponse = await api.request("POST", path, body=body)
    if answer.status == 409:
        answer = await api.request(
            "PATCH", f"{path}/{EPOCH_CONFIG_MAP}", body={"data": {"epoch": str(epoch)}}, content_type=MERGE_PATCH
        )
    if not answer.ok:
        raise GenesisRefused(f"the epoch was not written to {EPOCH_CONFIG_MAP}: {answer.status} {answer.message()}")
