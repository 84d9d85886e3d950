"""Recorded usage as a history: the processes of a machine that builds and tests this repository, read from procfs.

`usage_of_a_build_machine.json` has milli-cores and resident bytes for each step of ten seconds, of all processes with
one name together; null where there were none. It was recorded for this test and has the licence of the repository.
"""

import json
from pathlib import Path

from support.oracle.lines import Document
from support.oracle.recommending.histories import BEGIN

FILE = Path(__file__).with_name("usage_of_a_build_machine.json")
ASKED_EACH = 10
"""Steps after which it is asked what is recommended."""


def recorded(step: int) -> Document:
    """The recorded usage as that of one pod, with a container for each name. A step counts as so many seconds."""
    usage: dict[str, list[list[int] | None]] = json.loads(FILE.read_text())
    containers = [{"name": name, "resources": {"requests": {"memory": "256Mi"}}} for name in sorted(usage)]
    labels = {"app": "web", "pod-template-hash": "a"}
    events: list[Document] = [{"at": BEGIN, "created": {"uid": "p0", "labels": labels, "containers": containers}}]
    for number in range(max(map(len, usage.values()))):
        at = BEGIN + number * step
        for name, series in sorted(usage.items()):
            if (used := series[number]) is not None:
                events.append({"at": at, "pod": "p0", "container": name, "usage": used})
        if number % ASKED_EACH == ASKED_EACH - 1:
            events.append({"at": at, "ask": True})
    return {"history": {"settings": {}, "policies": [], "events": events}}
