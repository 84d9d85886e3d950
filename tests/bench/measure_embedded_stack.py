"""How long a person waits for the embedded servers of `koord up`: from nothing, and once more with their data."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.results import Better, Result
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.embedded.postgres import PostgresConfig, PostgresServer
from koordcore.embedded.supervisor import Supervisor

COLD_SECONDS = 4.0
WARM_SECONDS = 1.5
ATTEMPTS = 3


async def start_seconds(var: Path) -> float:
    """Return the seconds until log and store are ready; they are stopped afterwards."""
    began = time.monotonic()
    log = NatsServer(NatsServerConfig(name="nats", directory=var / "nats"))
    store = PostgresServer(PostgresConfig(data_dir=var / "postgres"))
    async with Supervisor([log.spec(), store.spec()], state_file=var / "run" / "stack.json"):
        return time.monotonic() - began


def measure() -> Iterator[Result]:
    """Yield the best of a few attempts, for other work on the machine may delay one of them."""
    with tempfile.TemporaryDirectory(prefix="koord-bench-") as folder:
        Path(folder).chmod(0o755)  # Postgres does not run as root
        for name, target, folders in (
            ("embedded stack, first start", COLD_SECONDS, [str(attempt) for attempt in range(ATTEMPTS)]),
            ("embedded stack, start with data", WARM_SECONDS, ["0"] * ATTEMPTS),
        ):
            best = min(asyncio.run(start_seconds(Path(folder, var, "var"))) for var in folders)
            yield Result(name=name, value=best, unit="s", target=target, better=Better.LOWER)
