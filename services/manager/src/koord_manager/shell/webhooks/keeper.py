"""Maintain everything that the API server needs to call the webhooks: certificate, files and configuration objects.

If the certificate in the Secret is not valid, a new one is made and stored. If another replica was first (409), its
certificate is used. Then the files and the configuration objects are brought up to date. This happens at the start,
every minute, and when one of the objects changes. If it fails, it is logged and retried, and the server continues with
its present certificate.

If an object changes while no watch is open, the next regular run finds the change. So no list and no stored version are
needed.

Source:
    manager spec, 7.2 (also (4)), 7.3; https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

import asyncio
import base64
import binascii
import contextlib
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol, cast

from koordcore.retry import Backoff
from koordcore.service.telemetry.logging import Logger
from koordcore.values import codec
from koordcore.values.invalid import InvalidInput

from koord_manager.domain.admission.concerned import Matched
from koord_manager.domain.admission.options import Options
from koord_manager.domain.admission.request import JsonObject
from koord_manager.domain.admission.webhooks import reconciled
from koord_manager.shell.gateway.api import ApiResponse, Unreachable
from koord_manager.shell.webhooks import certificates
from koord_manager.shell.webhooks.certificates import WebhookEnvironment
from koord_manager.shell.webhooks.quota_gate import ObjectsApi

OPEN_SECONDS: Final = 300
"""How long the API server keeps a watch open."""
DEAD_SECONDS: Final = 330.0
"""Time after which a watch is closed, because an object may not change for months."""
LONGEST_PAUSE_SECONDS: Final = 60.0


class WatchingApi(Protocol):
    def lines(
        self, path: str, parameters: Mapping[str, str], *, idle_seconds: float
    ) -> contextlib.AbstractAsyncContextManager[ApiResponse | AsyncIterator[list[bytes]]]:
        """Open a watch and yield an iterator over batches of its lines, or the response if the watch is refused.

        Raises:
            Unreachable: The API server does not answer.
        """
        ...


async def watch_object(
    api: WatchingApi, collection: str, name: str, changed: Callable[[], None], logger: Logger
) -> None:
    """Watch one object of the API server until cancelled, and call `changed` for each event of the watch.

    Args:
        collection: Path of the collection of the object.
        changed: Called without arguments.
        logger: Logs errors; the watch is opened again after them.
    """
    backoff = Backoff(1.0, LONGEST_PAUSE_SECONDS)
    parameters = {"watch": "1", "fieldSelector": f"metadata.name={name}", "timeoutSeconds": str(OPEN_SECONDS)}
    problem = ""
    while True:
        failure = ""
        try:
            async with api.lines(collection, parameters, idle_seconds=DEAD_SECONDS) as stream:
                if isinstance(stream, ApiResponse):
                    failure = f"{stream.status}: {stream.message()}"
                else:
                    async for _ in stream:
                        backoff.reset()
                        changed()
        except Unreachable as error:
            failure = str(error)
        if failure and failure != problem:
            logger.warning("webhook_object_not_watched", path=collection, name=name, reason=failure)
        problem = failure
        await backoff.wait()


PASS_SECONDS: Final = 60.0
LEAST_PAUSE_SECONDS: Final = 1.0
"""Minimum time between two runs, because somebody else may write the same objects repeatedly."""
RETRY_SECONDS: Final = 2.0
START_SECONDS: Final = 20.0
CONFLICTS: Final = 5
_SECRET_FILES: Final = frozenset((certificates.CA_KEY, certificates.KEY, certificates.TLS_KEY))
_CURRENT: Final = "current"


class KeptApi(ObjectsApi, WatchingApi, Protocol):
    pass


class NotKept(Exception):
    """Raised if the certificate, the files or the configuration objects could not be brought up to date.

    A later run retries.
    """


class Keeper:
    """Maintains the certificate, its files and the webhook configuration objects, in each replica.

    Args:
        api: Client of the API server, or None if there are only files.
        renewed: Called after each run with the bundle in use.
        matched: Returns the expressions for pods that profiles match, or None if this manager does not decide them now.
    """

    def __init__(
        self,
        environment: WebhookEnvironment,
        options: Options,
        api: KeptApi | None,
        *,
        now: Callable[[], datetime],
        renewed: Callable[[certificates.Bundle], None],
        logger: Logger,
        matched: Callable[[], Matched | None] = lambda: None,
    ) -> None:
        self._environment = environment
        self._options = options
        self._api = api
        self._now = now
        self._renewed = renewed
        self._matched = matched
        self._logger = logger
        self.bundle: certificates.Bundle | None = None
        self._changed = asyncio.Event()

    @property
    def certificate_file(self) -> Path:
        """Path of the server certificate; a part of the path is a link that is replaced atomically."""
        return self._environment.directory / _CURRENT / "tls.crt"

    @property
    def key_file(self) -> Path:
        return self._environment.directory / _CURRENT / "tls.key"

    async def start(self) -> None:
        """Bring everything up to date for the first time.

        Raises:
            NotKept: This failed for 20 s.
        """
        reason = "no answer"
        try:
            async with asyncio.timeout(START_SECONDS):
                while True:
                    try:
                        return await self.keep()
                    except NotKept as error:
                        self._logger.warning("webhook_certificates_not_kept", reason=str(error))
                        reason = str(error)
                        await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            raise NotKept(f"no certificate within {START_SECONDS:g} s: {reason}") from None

    def wake(self) -> None:
        """Bring everything up to date soon."""
        self._changed.set()

    async def run(self) -> None:
        """Bring everything up to date every minute and after every change of one of the objects, until cancelled."""
        async with asyncio.TaskGroup() as watches:
            if self._api is not None:
                for collection, name in self._watched():
                    watches.create_task(watch_object(self._api, collection, name, self._changed.set, self._logger))
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PASS_SECONDS):
                        await self._changed.wait()
                self._changed.clear()
                try:
                    await self.keep()
                except NotKept as error:
                    self._logger.warning("webhook_certificates_not_kept", reason=str(error))
                await asyncio.sleep(LEAST_PAUSE_SECONDS)

    def _watched(self) -> Iterator[tuple[str, str]]:
        yield from self._configurations()
        if self._environment.writer == "secret":
            yield f"/api/v1/namespaces/{self._environment.namespace}/secrets", self._environment.secret

    def _configurations(self) -> Iterator[tuple[str, str]]:
        registration = "/apis/admissionregistration.k8s.io/v1"
        yield f"{registration}/mutatingwebhookconfigurations", self._environment.mutating
        yield f"{registration}/validatingwebhookconfigurations", self._environment.validating

    async def keep(self) -> None:
        """Bring certificate, files and configuration objects up to date once.

        Raises:
            NotKept: This failed.
        """
        bundle = await self._valid_bundle()
        if bundle != self.bundle:
            await asyncio.to_thread(write_files, self._environment.directory, bundle)
            self.bundle = bundle
        self._renewed(bundle)
        if self._api is not None:
            address, ca = self._environment.address, bundle.ca_cert
            matched = self._matched()
            for collection, name in self._configurations():
                await self._keep_object(
                    f"{collection}/{name}", lambda present: reconciled(present, self._options, address, ca, matched)
                )

    async def _valid_bundle(self) -> certificates.Bundle:
        if self._environment.writer == "secret" and self._api is not None:
            return await self._bundle_of_secret(self._api)
        files = await asyncio.to_thread(read_files, self._environment.directory)
        found = certificates.read_bundle(files)
        return await self._valid(found) or cast("certificates.Bundle", found)

    async def _valid(self, found: certificates.Bundle | None) -> certificates.Bundle | None:
        """Return a new bundle if the present one is not valid, or None if it is."""
        now = self._now()
        reason = certificates.why_invalid(found, self._environment.dns_name, now)
        if reason is None:
            return None
        self._logger.info("webhook_certificate_made", reason=reason, name=self._environment.dns_name)
        return await asyncio.to_thread(certificates.make_bundle, self._environment.dns_name, now, found)

    async def _bundle_of_secret(self, api: ObjectsApi) -> certificates.Bundle:
        namespace, name = self._environment.namespace, self._environment.secret
        every = f"/api/v1/namespaces/{namespace}/secrets"
        for _ in range(CONFLICTS):
            answer = await self._request(api, "GET", f"{every}/{name}")
            if answer.status not in (200, 404):
                raise NotKept(f"secret {namespace}/{name}: {answer.status} {answer.message()}")
            present = _decoded(answer) if answer.status == 200 else None
            found = certificates.read_bundle(_secret_files(present)) if present else None
            fresh = await self._valid(found)
            if fresh is None and found is not None:
                return found
            assert fresh is not None
            data = {file: base64.b64encode(content).decode() for file, content in fresh.files().items()}
            if present is None:
                secret = {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": name, "namespace": namespace},
                    "data": data,
                }
                written = await self._request(api, "POST", every, secret)
            else:
                written = await self._request(api, "PUT", f"{every}/{name}", {**present, "data": data})
            if written.ok:
                return fresh
            if written.status != 409:
                raise NotKept(f"secret {namespace}/{name}: {written.status} {written.message()}")
            # another replica was first: all have to end with the same certificate, so its is taken
        raise NotKept(f"secret {namespace}/{name}: {CONFLICTS} conflicts with writes of others")

    async def _keep_object(self, path: str, change: Callable[[JsonObject], JsonObject | None]) -> None:
        """Read, change and replace an object, with retries after conflicts; no-op if it does not exist."""
        assert self._api is not None
        for _ in range(CONFLICTS):
            answer = await self._request(self._api, "GET", path)
            if answer.status == 404:
                self._logger.warning("webhook_configuration_absent", path=path)
                return
            if not answer.ok:
                raise NotKept(f"{path}: {answer.status} {answer.message()}")
            try:
                wanted = change(_decoded(answer))
            except InvalidInput as error:
                raise NotKept(f"{path}: {error.sentence()}") from error
            if wanted is None:
                return
            written = await self._request(self._api, "PUT", path, wanted)
            if written.ok:
                self._logger.info("webhook_configuration_written", path=path, entries=len(wanted["webhooks"]))
                return
            if written.status != 409:
                raise NotKept(f"{path}: {written.status} {written.message()}")
        raise NotKept(f"{path}: {CONFLICTS} conflicts with writes of others")

    async def _request(self, api: ObjectsApi, method: str, path: str, body: object = None) -> ApiResponse:
        try:
            return await api.request(method, path, body=body)
        except Unreachable as error:
            raise NotKept(str(error)) from error


def _decoded(answer: ApiResponse) -> JsonObject:
    try:
        return codec.decode(answer.body, dict[str, Any])
    except codec.DecodeError as error:
        raise NotKept(f"the answer of the API server is not a valid object: {error}") from error


def _secret_files(secret: JsonObject) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for name, text in cast("dict[str, object]", secret.get("data") or {}).items():
        try:
            files[name] = base64.b64decode(str(text), validate=True)
        except binascii.Error:
            continue  # as good as missing: the bundle is made anew
    return files


def read_files(directory: Path) -> dict[str, bytes]:
    """Return file name -> content of the certificate files in use, or an empty mapping if there are none."""
    folder = directory / _CURRENT
    try:
        return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    except OSError:
        return {}


def write_files(directory: Path, bundle: certificates.Bundle) -> None:
    """Write the bundle to a new folder, then replace the link, so that readers see either all old or all new files.

    Raises:
        NotKept: The files cannot be written.
    """
    fresh = directory / f"bundle-{uuid.uuid4().hex[:12]}"
    switched = directory / f"{fresh.name}.link"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        fresh.mkdir(mode=0o700)
        for name, content in bundle.files().items():
            mode = 0o600 if name in _SECRET_FILES else 0o644
            descriptor = os.open(fresh / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
        link = directory / _CURRENT
        before = link.resolve() if link.is_symlink() else None
        switched.symlink_to(fresh.name)
        switched.replace(link)
        if before is not None and before != fresh:
            shutil.rmtree(before, ignore_errors=True)
    except OSError as error:
        with contextlib.suppress(OSError):  # each run would leave another key behind
            switched.unlink(missing_ok=True)
        shutil.rmtree(fresh, ignore_errors=True)
        raise NotKept(f"{directory}: {error}") from error
