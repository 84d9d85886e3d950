"""`koord nightly`: check and copy the log each night, and serve the results as metrics, over HTTP or over TLS.

    compare-copies -> backup -> drill -> archive -> verify    each one is a `koord` command with the key of its own user

The time of the last run and of the last success of each check is kept in a file, so a restart forgets neither.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast

import msgspec
import typer

from koordctl.log.health import NIGHTLY_RUN, NIGHTLY_SUCCESS
from koordctl.render.output import console, fail

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from starlette.types import ASGIApp


USERS: Final = {
    "compare-copies": "auditor",
    "backup": "backup",
    "drill": "",
    "archive": "retention",
    "verify": "operator",
}
"""Check -> user of the log with whose key it runs; "": the check does not connect to the log."""
LOOK_SECONDS: Final = 10.0
"""Time between two looks at the clock, at the certificate, and at the results of other runs."""
MANIFEST: Final = "backup.json"


def address_of(listen: str) -> tuple[str, int]:
    """End the command if the option does not have the form HOST:PORT."""
    host, _, port = listen.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) < 1 << 16):
        fail(f"--listen must be HOST:PORT, got {listen!r}", status=2)
    return host.strip("[]"), int(port)


@contextmanager
def served_metrics(
    registry: CollectorRegistry, address: tuple[str, int], certificate: Path | None
) -> Generator[Callable[[], bool]]:
    """Serve metrics inside the block, and yield a function that loads the certificate again if it was rotated.

    The command ends if the address is in use, or if the certificate cannot be read.

    Args:
        certificate: File `<name>.crt` of the certificate, beside its key `<name>.key`. None serves without TLS.
    """
    from koordcore.service.web.certificate import Certificate
    from koordcore.service.web.web_server import bind_to, served_in_thread
    from prometheus_client import make_asgi_app  # pyright: ignore[reportUnknownVariableType]  its module has no types

    loaded: Certificate | None = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            loaded = Certificate(context, certificate, certificate.with_suffix(".key"))
        except OSError as error:
            fail(f"{certificate} and its key: {error.strerror}")
    try:
        listener = bind_to(*address)
    except OSError as error:
        fail(f"--listen {address[0]}:{address[1]}: {os.strerror(error.errno or 0)}")
    app = cast("ASGIApp", make_asgi_app(registry))
    with served_in_thread(app, listener, loaded.context if loaded is not None else None):
        yield loaded.reload_when_rotated if loaded is not None else lambda: False


class Check(msgspec.Struct):
    ran: float = 0.0  # Unix time at which the last run began; 0 if there was none
    succeeded: float = 0.0  # Unix time at which the last run that succeeded began; 0 if there was none


def nightly(
    folder: Annotated[Path, typer.Argument(help="Folder of the backups, the archive and the results.")],
    at: Annotated[str, typer.Option(metavar="HH:MM", help="Time of the run, UTC.")] = "02:30",
    keys: Annotated[
        Path | None,
        typer.Option(help="Folder with the keys of auditor, backup, retention, operator; none: those of the stack."),
    ] = None,
    server: Annotated[str, typer.Option(help="URL of a NATS server for drills; default: start one.")] = "",
    keep: Annotated[int, typer.Option(min=1, help="Number of backups that are kept.")] = 14,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Serve the results at /metrics.")] = "",
    once: Annotated[bool, typer.Option("--once", help="Run the checks now, and end.")] = False,
) -> None:
    """Each night: compare the servers' copies of the log, back it up, restore the backup for a test, archive, verify.

    These are the commands `koord verify --replicas`, `koord backup`, `koord drill`, `koord bus archive` and `koord
    verify`. A run that was missed is made at once. With --listen, the results are served over TLS with the certificate
    in the keys of the user `auditor`, or over HTTP if it has none. Results of a run with --once are served, too.

    Examples:

      koord nightly /var/nights --at 02:30 --keys keys --listen 0.0.0.0:8080

      koord nightly /var/nights --once
    """
    try:
        moment = dt.time.fromisoformat(at)
    except ValueError:
        fail(f"--at must be HH:MM, got {at!r}", status=2)
    (folder / "backups").mkdir(parents=True, exist_ok=True)
    runs, results = _runs(folder, server, keep), _results(folder)
    with _served(results, listen, keys) as reload_certificate:
        while True:
            while not (once or is_due(datetime.now(UTC), moment, min(each.ran for each in results.values()))):
                time.sleep(LOOK_SECONDS)
                reload_certificate()
                results.update(_results(folder))  # of a run with --once
            for check, run in runs.items():
                began = time.time()
                is_good = run(_environment(USERS[check], keys))
                found = results[check]
                results[check] = Check(ran=began, succeeded=began if is_good else found.succeeded)
                _write(folder, results)
                reload_certificate()
                console.print(f"{check}: {'succeeded' if is_good else 'FAILED'}")
            if once:
                raise typer.Exit(int(any(each.ran != each.succeeded for each in results.values())))


def is_due(now: datetime, at: dt.time, ran: float) -> bool:
    """Whether the run of the last night, or of this one, has not been made.

    Args:
        now: In UTC.
        at: Hour and minute of the run.
        ran: Unix time of the last run.
    """
    latest = now.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    if latest > now:
        latest -= timedelta(days=1)
    return ran < latest.timestamp()


def _runs(folder: Path, server: str, keep: int) -> dict[str, Callable[[Mapping[str, str]], bool]]:
    """Check -> function that makes it in an environment, and returns whether it succeeded."""
    backups, archive = folder / "backups", str(folder / "archive")

    def koord(*words: str, environment: Mapping[str, str]) -> bool:
        return subprocess.run([sys.executable, "-m", "koordctl", *words], env=environment, check=False).returncode == 0

    def back_up(environment: Mapping[str, str]) -> bool:
        place = backups / datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S")
        if not koord("backup", str(place), environment=environment):
            return False
        complete = _complete(backups)
        for each in set(backups.iterdir()) - set(complete[-keep:]):
            shutil.rmtree(each)
        return True

    def drill(environment: Mapping[str, str]) -> bool:
        newest = [str(each) for each in _complete(backups)[-1:]]
        return koord("drill", *newest, *([f"--server={server}"] if server else []), environment=environment)

    return {
        "compare-copies": lambda environment: koord("verify", "--replicas", environment=environment),
        "backup": back_up,
        "drill": drill,
        "archive": lambda environment: koord("bus", "archive", archive, environment=environment),
        "verify": lambda environment: koord("verify", environment={**environment, "KOORD_ARCHIVE": archive}),
    }


def _complete(backups: Path) -> list[Path]:
    """Folders of complete backups, the newest last."""
    return sorted(manifest.parent for manifest in backups.glob(f"*/{MANIFEST}"))


def _environment(user: str, keys: Path | None) -> dict[str, str]:
    environment = dict(os.environ)
    if keys is not None and user:
        environment["KOORD_NATS_SEED"] = str(keys / user / "nats.seed")
        environment["KOORD_NATS_CA"] = str(keys / user / "ca.crt")
    return environment


def _results(folder: Path) -> dict[str, Check]:
    try:
        found = msgspec.json.decode((folder / "results.json").read_bytes(), type=dict[str, Check])
    except FileNotFoundError:
        found = {}
    return {check: found.get(check, Check()) for check in USERS}


def _write(folder: Path, results: Mapping[str, Check]) -> None:
    written = folder / "results.new"
    written.write_bytes(msgspec.json.encode(results))
    written.replace(folder / "results.json")


@contextmanager
def _served(results: Mapping[str, Check], listen: str, keys: Path | None) -> Generator[Callable[[], bool]]:
    """Serve a page with the results inside the block. Yield a function that loads its certificate if it was rotated."""
    if not listen:
        yield lambda: False
        return
    certificate = None if keys is None else keys / "auditor" / "tls.crt"
    is_secure = certificate is not None and certificate.exists()
    with served_metrics(registry_of(results), address_of(listen), certificate if is_secure else None) as reload:
        yield reload


def registry_of(results: Mapping[str, Check]) -> CollectorRegistry:
    """Metrics with the results of each check, as they are when the metrics are read."""
    from prometheus_client import CollectorRegistry, Gauge

    registry = CollectorRegistry()
    told = {
        NIGHTLY_RUN: "Start of the last run of a nightly check; 0: none",
        NIGHTLY_SUCCESS: "Start of the last run of a nightly check that succeeded; 0: none",
    }
    ran, succeeded = (Gauge(name, text, ["check"], registry=registry) for name, text in told.items())
    for check in USERS:
        ran.labels(check).set_function(lambda check=check: results[check].ran)
        succeeded.labels(check).set_function(lambda check=check: results[check].succeeded)
    return registry
