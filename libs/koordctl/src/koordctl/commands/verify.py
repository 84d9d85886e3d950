"""`koord verify`: compare the states of the running services with a state rebuilt from the log."""

from typing import Annotated

import typer
from koordcore.bus.read.replicas import CopyDigest, difference, read_copies
from koordcore.state.allocation_rules import broken_rules

from koordctl.access.clients import service_url
from koordctl.access.log import open_log, wait_for
from koordctl.access.verification import Verification, verify_now
from koordctl.render.output import WholeOption, console, fail, show_table, start_text, working


def verify(
    seconds: Annotated[float, typer.Option("--timeout", help="Give up after so many seconds.")] = 60.0,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Compare only the copies of the log that the NATS servers hold.")
    ] = False,
    whole: WholeOption = False,
) -> None:
    """Check that the manager, the projector and a state rebuilt from the log are equal. Works under load.

    With KOORD_ARCHIVE, the state is rebuilt from the nearest snapshot of the archive, and the output names its
    position. The job that archives facts has folded it from the first fact on.

    Then check the allocations of every node: each exclusive CPU and each virtual function has one holder, and no more
    of a device or a reservation is taken than there is. Pods that other schedulers bound count with their annotations.

    With --replicas, read the copy of the stream of facts on each NATS server instead, and compare every message: bytes
    that changed on the disk of one server are found. Elsewhere than on the embedded stack, KOORD_NATS_SEED must be the
    key of the user `auditor`.

    Exit status 0 if the hashes are equal and no rule is broken, 1 otherwise or if a service does not answer.

    Examples:

      koord verify

      koord verify --replicas
    """
    if replicas:
        with working("reading the copies of the log"):
            copies = wait_for(_copies())
        _compare_copies(copies)
        return
    with working("folding the log"):
        found = wait_for(_verify(seconds, whole=whole))
    folds = [("manager, live", found.live), ("projector, rows", found.projector)]
    start = start_text(found.folded.begin, "from zero")
    marks = sorted({fold.position for _, fold in folds})
    show_table(
        ["fold", "position", "hash"],
        [
            *([name, fold.position, fold.hash] for name, fold in folds),
            *([start, position, found.folded.hashes[position]] for position in marks),
        ],
    )
    if not found.equal:
        fail(f"the folds differ at position {found.position}")
    broken = broken_rules(found.folded.state)
    for node, violations in broken.items():
        for violation in violations:
            console.print(f"node {node}: {violation.sentence()}", style="red", highlight=False)
    if broken:
        fail(f"the allocations of {len(broken)} nodes break a rule")
    rate = found.folded.events_per_second
    console.print(
        f"equal; {found.folded.events:,} events folded at {rate:,.0f} events/s", style="green", highlight=False
    )


def _compare_copies(copies: list[CopyDigest]) -> None:
    """Print the copies of the servers. End the command if two of them differ."""
    show_table(["server", "facts"], [[copy.server or "-", copy.messages] for copy in copies])
    found = difference(copies)
    if found:
        fail(f"{found}: stop the server with the wrong copy, empty its disk, and start it again to copy the stream")
    console.print(f"equal; {len(copies)} copies", style="green", highlight=False)


async def _copies() -> list[CopyDigest]:
    from koordcore.bus.setup.manifest import AUDITOR

    async with open_log(principal=AUDITOR.name) as log:
        return await read_copies(log.connection, log.names.ev, log.names.prefix("ev"))


async def _verify(seconds: float, *, whole: bool) -> Verification:
    async with open_log() as log:
        return await verify_now(log.bus, manager=service_url("manager"), seconds=seconds, whole=whole)
