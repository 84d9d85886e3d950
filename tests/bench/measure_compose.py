"""How long a person waits for `docker compose up` until a pod is placed: existing images, new volumes."""

from collections.abc import Iterator

from bench.results import Better, Result, RowsWithoutResult
from koordcore.embedded.ports import free_ports
from support.compose import Compose, missing_programs, prepared_images

TARGET_SECONDS = 30.0
ATTEMPTS = 3


def measure() -> Iterator[Result]:
    """Yield the best of a few attempts, for other work on the machine may delay one of them."""
    if reason := missing_programs():
        raise RowsWithoutResult(reason)
    compose = Compose("koord-bench", free_ports(1)[0])
    seconds: list[float] = []
    with prepared_images():
        for _ in range(ATTEMPTS):
            compose("down", "--volumes", "--timeout", "5", check=False)
            try:
                seconds.append(compose.start_to_placed_pod())
            finally:
                compose("down", "--volumes", "--timeout", "5", check=False)
    yield Result(
        name="compose, up to a placed pod",
        value=min(seconds),
        unit="s",
        target=TARGET_SECONDS,
        better=Better.LOWER,
        note=f"attempts: {', '.join(f'{each:.1f}' for each in seconds)} s",
    )
