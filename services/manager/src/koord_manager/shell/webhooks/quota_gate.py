"""Quota admission of the webhook: collect the pods of one quota, evaluate them in order, and write the usage.

A quota has one batch of pods in work at a time, and at most 16 quotas are in work at once. The usage is written before
any pod of the batch is admitted, with the resource version at which it was read. So two replicas cannot admit pods to
the same free amount. The usage is read from the API server, because the fold has no resource versions. The last written
usage counts as read. Before a pod is denied because of it, the usage is read again.

A parent quota and its child may be created by one `kubectl apply`, and different replicas may admit them. The replica
that admits the child learns of the parent from the log, perhaps a moment too late. So quotas that the fold does not
contain yet are read from the API server before a request is refused because of them.

Source:
    manager spec, 10.4, 13.2 (last paragraph)
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from koordcore.ending import end_tasks
from koordcore.protocol import keys
from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput
from koordcore.values.newest import Newest
from koordcore.values.resources import ResourceList

from koord_manager.domain.admission.context.quota import Quota, read_quota
from koord_manager.domain.admission.json_object import seen, text
from koord_manager.domain.admission.quotas.evaluation import Evaluation, QuotaAnswer, child_request_text, evaluate_quota
from koord_manager.domain.admission.request import JsonObject, Request
from koord_manager.shell.gateway.api import ApiResponse, Unreachable

WAIT_SECONDS: Final = 10.0
WORKERS: Final = 16
KEPT_WRITES: Final = 100
TIMED_OUT: Final = "elastic quota evaluation timed out"
ENDED: Final = "elastic quota evaluation has ended before it had a result"
_CONFLICT: Final = 409


class ObjectsApi(Protocol):
    async def request(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        body: object = None,
        content_type: str = "application/json",
    ) -> ApiResponse:
        """Send one request to the API server and return its response, whatever its status.

        Raises:
            Unreachable: The API server does not answer.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePolicy:
    """Settings of the retries of writes of a quota's usage (flags --quota-update-*)."""

    max_retries: int = 3
    jitter_seconds: float = 0.0  # Maximum pause before a retry; the minimum is half of it
    total_jitter_seconds: float = 1.0  # Maximum of all pauses of one batch together


class _Asked:
    def __init__(self, request: ResourceList, done: "asyncio.Future[QuotaAnswer]") -> None:
        self.request = request
        self.done = done


class QuotaGate:
    """Quota admission of the webhook: admits pods to their quotas in batches, and writes the usage to the API server.

    Args:
        uniform: Returns a random number from 0 to below 1, for the jitter.
    """

    def __init__(self, api: ObjectsApi, policy: UpdatePolicy, uniform: Callable[[], float], logger: Logger) -> None:
        self._api = api
        self._policy = policy
        self._uniform = uniform
        self._logger = logger
        self._queues: dict[tuple[str, str], list[_Asked]] = {}
        self._workers: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(WORKERS)
        self._written = Newest[tuple[str, str], JsonObject](KEPT_WRITES)

    async def ask(self, quota: Quota, request: ResourceList) -> QuotaAnswer:
        """Return whether a pod fits into its quota. If it fits, its request is added to the usage of the quota.

        If there is no result after 10 s, or if the usage cannot be read or written, the pod is denied.

        Args:
            quota: The quota as it was observed.
            request: Amounts that the pod is charged with.
        """
        key = (quota.namespace, quota.name)
        done: asyncio.Future[QuotaAnswer] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(key, []).append(_Asked(request, done))
        if key not in self._workers:
            self._workers[key] = asyncio.create_task(self._work(key), name=f"quota {quota.name}")
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                return await done
        except TimeoutError:
            return QuotaAnswer(("",), TIMED_OUT)

    async def close(self) -> None:
        """Stop and cancel all work. Pods that wait are denied at once."""
        await end_tasks(*self._workers.values())

    async def _work(self, key: tuple[str, str]) -> None:
        batch: list[_Asked] = []
        try:
            while batch := [asked for asked in self._queues.pop(key, []) if not asked.done.done()]:
                async with self._room:
                    answers = await self._answered(key, [asked.request for asked in batch])
                for asked, answer in zip(batch, answers, strict=True):
                    if not asked.done.done():
                        asked.done.set_result(answer)
        finally:
            del self._workers[key]
            for asked in (*batch, *self._queues.pop(key, ())):
                if not asked.done.done():
                    asked.done.set_result(QuotaAnswer(("",), ENDED))

    async def _answered(self, key: tuple[str, str], requests: Sequence[ResourceList]) -> Sequence[QuotaAnswer]:
        """Decide a batch. After an unexpected error, decide each pod alone, so that only the pod at fault is denied.

        Such an error comes before the usage is written, so no pod is counted twice.
        """
        try:
            return await self._decided(key, requests)
        except Exception as error:
            self._written.pop(key, None)  # it may be at fault
            if len(requests) > 1:
                return [answer for request in requests for answer in await self._answered(key, [request])]
            cause = f"{type(error).__name__}: {error}"
            self._logger.error("quota_not_evaluated", object="/".join(key), error=cause, exc_info=error)
            return [QuotaAnswer(("",), f"quota {key[1]} cannot be evaluated: {cause}")]

    async def _decided(self, key: tuple[str, str], requests: Sequence[ResourceList]) -> Sequence[QuotaAnswer]:
        """Evaluate a batch and write the usage, with retries after conflicts. If that fails, the pods are denied."""
        remembered = self._written.get(key)
        document: JsonObject | str = remembered if remembered is not None else await self._read(key)
        waited, tries = 0.0, 0
        while True:
            if isinstance(document, str):
                return [QuotaAnswer(("",), document)] * len(requests)
            try:
                evaluation = evaluate_quota(read_quota(document), requests)
            except InvalidInput as error:
                return [QuotaAnswer(("",), f"quota {key[1]} cannot be read: {error.sentence()}")] * len(requests)
            if document is remembered and not all(answer.allowed for answer in evaluation.answers):
                # what pods have given back since is only known to who reads again
                document = await self._read(key)
                continue
            if not evaluation.written:
                return evaluation.answers
            refusal = await self._write(key, document, evaluation)
            if refusal is None:
                return evaluation.answers
            if refusal.status != _CONFLICT or tries >= self._budget(evaluation):
                sentence = f"the account of quota {key[1]} could not be written: {refusal.status} {refusal.message()}"
                return [answer if not answer.allowed else QuotaAnswer(("",), sentence) for answer in evaluation.answers]
            tries += 1
            pause = min(
                self._policy.jitter_seconds * (0.5 + self._uniform() / 2), self._policy.total_jitter_seconds - waited
            )
            if pause > 0:
                waited += pause
                await asyncio.sleep(pause)
            document = await self._read(key)

    def _budget(self, evaluation: Evaluation) -> int:
        changed = max(1, sum(answer.allowed for answer in evaluation.answers))
        return min(3 + int(math.log2(changed)), self._policy.max_retries)

    async def _write(self, key: tuple[str, str], document: JsonObject, evaluation: Evaluation) -> ApiResponse | None:
        metadata = cast("JsonObject", document.get("metadata") or {})
        change: dict[str, Any] = {
            "metadata": {
                "resourceVersion": metadata.get("resourceVersion"),
                "annotations": {keys.QUOTA_CHILD_REQUEST: child_request_text(evaluation.used)},
            }
        }
        try:
            answer = await self._api.request(
                "PATCH", _path(*key), body=change, content_type="application/merge-patch+json"
            )
        except Unreachable as error:
            return ApiResponse(503, str(error).encode())
        except Exception as error:  # the usage may be written, so the batch must not be decided again
            cause = f"{type(error).__name__}: {error}"
            self._logger.error("quota_not_written", object="/".join(key), error=cause, exc_info=error)
            return ApiResponse(503, cause.encode())
        if not answer.ok:
            return answer
        stored = _decoded(answer.body)
        if stored is not None:
            self._written.pop(key, None)  # so that it is the newest one
            self._written[key] = stored
        return None

    async def _read(self, key: tuple[str, str]) -> JsonObject | str:
        self._written.pop(key, None)
        try:
            answer = await self._api.request("GET", _path(*key))
        except Unreachable as error:
            return f"quota {key[1]} cannot be read: {error}"
        found = _decoded(answer.body) if answer.ok else None
        return found if found is not None else f"quota {key[1]} cannot be read: {answer.status} {answer.message()}"


def _path(namespace: str, name: str) -> str:
    return f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{namespace}/elasticquotas/{name}"


def _decoded(body: bytes) -> JsonObject | None:
    try:
        return codec.decode(body, JsonObject)
    except codec.DecodeError:
        return None


_PATH = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"


def missing_quotas(request: Request, is_known: Callable[[str], bool]) -> list[str]:
    """Return the names of the quotas that a request refers to and that are not known.

    Args:
        request: Request about a quota or a pod; other requests refer to no quota.
        is_known: Whether the fold contains a quota of a name, or this replica accepted a request about it.
    """
    if request.resource not in ("elasticquotas", "pods") or request.subresource:
        return []
    try:
        if request.resource == "pods":
            names = [text(seen(request.object, "metadata", "labels"), keys.QUOTA_NAME)]
        else:
            quotas = [read_quota(found) for found in (request.object, request.old_object) if found]
            names = [name for quota in quotas for name in (quota.parent, quota.name)]
            if not request.old_object:
                names = names[:1]  # a quota that is created is known by nobody
    except InvalidInput:
        return []
    return [name for name in dict.fromkeys(names) if name and name != keys.ROOT_QUOTA and not is_known(name)]


async def read_quotas(api: ObjectsApi, names: list[str]) -> list[Quota]:
    """Return the quotas with these names, in any namespace, that the API server has; none if it does not answer."""
    found: list[Quota] = []
    for name in names:
        try:
            answer = await api.request("GET", _PATH, parameters={"fieldSelector": f"metadata.name={name}"})
            items = codec.decode(answer.body, dict[str, Any]).get("items") if answer.ok else None
            found += [read_quota(item) for item in cast("list[dict[str, Any]]", items or [])]
        except (Unreachable, codec.DecodeError, InvalidInput):
            continue  # the request is refused, as the fold says
    return found
