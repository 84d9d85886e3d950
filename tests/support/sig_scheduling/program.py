"""Kubernetes' own end-to-end tests of SIG Scheduling as a program, which `make test-sig-scheduling` builds."""

import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.kubernetes.control_plane import TOOLS

PROGRAM: Final = TOOLS / "sig-scheduling"
FOCUS: Final = r"\[sig-scheduling\]"
"""The program also has tests of other groups, because those of SIG Scheduling share code with them."""
_LABELS: Final = re.compile(r"\[[^]]*\]")


@dataclass(frozen=True, slots=True)
class Spec:
    """A test, as ginkgo reports it.

    Attributes:
        name: Its group and what it validates, without labels: "SchedulerPreemption: validates basic preemption works".
        state: passed, failed, timedout, interrupted, ...
        failure: Why it failed, or "".
    """

    name: str
    state: str
    failure: str


def name_of(groups: list[str], text: str) -> str:
    """Return the name of a test from the texts of its containers and its own."""
    plain = [" ".join(_LABELS.sub("", part).split()) for part in (" / ".join(groups), text)]
    return ": ".join(plain)


async def run_specs(directory: Path, *flags: str) -> list[Spec]:
    """Run tests of SIG Scheduling and return the report of each that ran. The log of the run is in the folder.

    Args:
        directory: Folder for report and log.
        flags: Flags of e2e.test.
    """
    report = directory / "report.json"
    output = (f"--ginkgo.json-report={report}", "--ginkgo.no-color", "--ginkgo.seed=1")
    with (directory / "sig-scheduling.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(str(PROGRAM), "--provider=skeleton", f"--ginkgo.focus={FOCUS}", *output, *flags),
            stdout=log,
            stderr=asyncio.subprocess.STDOUT,
            cwd=directory,
        )
        try:
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
    (suite,) = json.loads(report.read_text(encoding="utf-8"))
    return [_read(spec) for spec in suite["SpecReports"] if spec["LeafNodeType"] == "It" and spec["State"] != "skipped"]


def _read(spec: dict[str, Any]) -> Spec:
    failure: dict[str, Any] = spec.get("Failure") or {}
    name = name_of(spec["ContainerHierarchyTexts"], spec["LeafNodeText"])
    return Spec(name, spec["State"], failure.get("Message", ""))
