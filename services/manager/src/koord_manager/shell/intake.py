"""Queue documents between the HTTP API and their processing; each document gets one result.

All documents are decided one after the other. If two requests name the same object, the second one is decided on the
result of the first.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import msgspec
from koordcore.bus.read.log_size import LogRoom
from koordcore.protocol.manifests import InvalidManifest, Manifest, shape_manifest
from koordcore.requests.objects import ChangeNode, PatchObject

from koord_manager.domain.documents.admitting import WITHIN_RULE
from koord_manager.domain.documents.apply import Target
from koord_manager.domain.documents.warnings import document_warnings

NEW_WORK: Final = frozenset({"Pod", "Deployment", "Job"})
"""Kinds of documents that are refused while the log is short of room."""
WorkSubject: TypeAlias = Manifest | Target | ChangeNode | PatchObject
"""Subject of a decision: a document, the object to delete, or a change of an object."""


class FieldError(msgspec.Struct, frozen=True):
    field: str
    rule: str
    value: str


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    # created, configured, unchanged, deleted, not-found, refused, or failed. It failed if the log could not store it,
    # if this instance does not lead or is stopping, or if the decision raised an error.
    action: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    seq: int = 0  # Position of the last fact of the document, or 0 if it led to none
    traceparent: str = ""
    errors: list[FieldError] = []  # Reasons of a refusal
    warnings: list[str] = []  # Warnings about the document, which do not depend on the result
    # In a dry run, the created or changed pod or custom resource as it would be stored; None otherwise.
    object: dict[str, Any] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Work:
    """One document that waits to be processed. Two objects are never equal."""

    subject: WorkSubject  # The document, the object to delete, or a change of an object
    request_id: str
    number: int  # Number of the document in the request
    done: "asyncio.Future[Result]"
    dry_run: bool = False
    warnings: tuple[str, ...] = ()  # Sentences about parts of the document that are ignored


class Intake:
    """Bounded queue of documents between the HTTP API and their processing.

    When closed, it refuses further documents.

    Args:
        limit: Largest number of waiting documents.
        room: Free space of the log. While it is nearly full, pods and workloads are refused.
    """

    def __init__(self, limit: int = 20_000, room: LogRoom | None = None) -> None:
        self._room = room or LogRoom()
        self._queue: asyncio.Queue[Work | None] = asyncio.Queue(limit)
        self._waiting_for_room = 0
        self._closed = False

    async def submit(self, subjects: list[object], request_id: str, *, dry_run: bool = False) -> list[Result]:
        """Queue documents, wait until they are processed, and return their results in order.

        A document with fields of a wrong type is refused at once. A document fails at once if the intake is closed. A
        pod or workload also does while the log is short of room.

        Args:
            subjects: The documents, the names of objects to delete, or changes of objects.
            request_id: Id of the HTTP request.
            dry_run: Whether to decide without storing anything.
        """
        loop = asyncio.get_running_loop()
        pending: list[Result | asyncio.Future[Result]] = []
        for index, subject in enumerate(subjects):
            if index % 100 == 99:
                await asyncio.sleep(0)  # a request of thousands of documents must not hold the loop
            warnings: tuple[str, ...] = ()
            if isinstance(subject, Target | ChangeNode | PatchObject):
                work: WorkSubject = subject
            else:
                warnings = document_warnings(subject)
                try:
                    work = shape_manifest(subject)
                except InvalidManifest as refused:
                    pending.append(msgspec.structs.replace(refusal(refused, subject), warnings=list(warnings)))
                    continue
            if self._closed:
                pending.append(Result("failed", errors=[FieldError("", "the service is stopping", "")]))
                continue
            if isinstance(work, Manifest) and work.kind in NEW_WORK and (full := self._room.trouble()) is not None:
                meta = work.object.metadata
                errors = [FieldError("", full, "")]
                pending.append(Result("failed", work.kind, meta.namespace, meta.name, errors=errors))
                continue
            done: asyncio.Future[Result] = loop.create_future()
            self._waiting_for_room += 1
            try:
                await self._queue.put(Work(work, request_id, index, done, dry_run, warnings))
            finally:
                self._waiting_for_room -= 1
            pending.append(done)
        return [item if isinstance(item, Result) else await item for item in pending]

    async def take(self, limit: int) -> list[Work]:
        """Wait for documents and return up to `limit` of them, or an empty list if the intake is closed and empty."""
        works: list[Work] = []
        while not works:
            if self._closed and self._queue.empty() and not self._waiting_for_room:
                return []
            first = await self._queue.get()
            if first is not None:
                works.append(first)
            while len(works) < limit and not self._queue.empty():
                further = self._queue.get_nowait()
                if further is not None:
                    works.append(further)
        return works

    async def close(self) -> None:
        """Refuse further documents. `take` still returns those that are queued."""
        self._closed = True
        if not self._queue.full():
            self._queue.put_nowait(None)  # wakes who waits for work; nobody does while the queue is full


def refusal(refused: InvalidManifest, document: object) -> Result:
    """Return the result "refused" for a document, with as much of the object's name as can be read from it."""
    kind = namespace = name = ""
    if isinstance(document, dict):
        entries = cast("dict[str, object]", document)
        kind = str(entries.get("kind", ""))[:63]
        meta = entries.get("metadata")
        if isinstance(meta, dict):
            fields = cast("dict[str, object]", meta)
            namespace, name = str(fields.get("namespace", ""))[:63], str(fields.get("name", ""))[:253]
    return Result("refused", kind, namespace, name, errors=field_errors(refused))


def field_errors(refused: InvalidManifest) -> list[FieldError]:
    """Return field, rule and value of every violation of a refused document. Values are cut to 200 characters.

    The value of a rule of admission is the whole sentence, which is not cut.
    """
    return [
        FieldError(
            item.path, item.rule, str(item.value) if item.rule.startswith(WITHIN_RULE) else repr(item.value)[:200]
        )
        for item in refused.violations
    ]
