"""The queue between the HTTP doors and the cycle: documents in, one result for each document out.

The cycle decides all documents, one after the other, against one view: so two requests that name the same object are
decided in the order of their arrival, and the second sees what the first has written.
"""

import asyncio
from dataclasses import dataclass
from typing import cast

import msgspec
from koordcore.protocol.manifests import InvalidManifest, Manifest, shape_manifest

from koord_manager.domain.document_warnings import document_warnings
from koord_manager.domain.documents.admitting import WITHIN_RULE
from koord_manager.domain.documents.delete import Target


class FieldError(msgspec.Struct, frozen=True):
    """Why a document was refused, at one field."""

    field: str
    rule: str
    value: str


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one document.

    action    created, configured, unchanged, deleted, not-found, refused, or failed (the log could not take it)
    seq       position of the document's last fact, 0 when there is none
    warnings  what is worth a look in it, taken or not
    """

    action: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    seq: int = 0
    traceparent: str = ""
    errors: list[FieldError] = []
    warnings: list[str] = []


@dataclass(frozen=True, eq=False, slots=True)
class Work:
    """One document on its way to the cycle; equal only to itself.

    warnings  what it says that will not be understood
    """

    subject: Manifest | Target
    request_id: str
    number: int
    done: "asyncio.Future[Result]"
    dry_run: bool = False
    warnings: tuple[str, ...] = ()


class Intake:
    """A bounded queue of work; `submit` waits for room and for the results. Once closed it takes no more."""

    def __init__(self, limit: int = 20_000) -> None:
        self._queue: asyncio.Queue[Work | None] = asyncio.Queue(limit)
        self._waiting_for_room = 0
        self._closed = False

    async def submit(self, subjects: list[object], request_id: str, *, dry_run: bool = False) -> list[Result]:
        """Results of the documents or targets, in order. Documents that have not the shape of a kind are refused here.

        dry_run   decide and answer, append nothing
        """
        loop = asyncio.get_running_loop()
        pending: list[Result | asyncio.Future[Result]] = []
        for index, subject in enumerate(subjects):
            if index % 100 == 99:
                await asyncio.sleep(0)  # a request of thousands of documents must not hold the loop
            warnings: tuple[str, ...] = ()
            if isinstance(subject, Target):
                work: Manifest | Target = subject
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
            done: asyncio.Future[Result] = loop.create_future()
            self._waiting_for_room += 1
            try:
                await self._queue.put(Work(work, request_id, index, done, dry_run, warnings))
            finally:
                self._waiting_for_room -= 1
            pending.append(done)
        return [item if isinstance(item, Result) else await item for item in pending]

    async def take(self, limit: int) -> list[Work]:
        """Waits for work, then takes up to `limit` of what has queued up; nothing once it is closed and empty."""
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
        """Takes no more work; `take` gives what is queued, then nothing."""
        self._closed = True
        if not self._queue.full():
            self._queue.put_nowait(None)  # wakes who waits for work; nobody does while the queue is full


def refusal(refused: InvalidManifest, document: object) -> Result:
    """The result of a refused document; names it as far as it can be read."""
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
    """Field, rule and value of every violation; long values are cut. A rule of admission has a sentence as value."""
    return [
        FieldError(
            item.path, item.rule, str(item.value) if item.rule.startswith(WITHIN_RULE) else repr(item.value)[:200]
        )
        for item in refused.violations
    ]
