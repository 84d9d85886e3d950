"""One pod with crictl: its life from sandbox to removal, and what each command printed without ids and times."""

import json
import re
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from koordctl.stack.containers import IMAGE
from support.runtime_tools import CRICTL
from support.until import until_blocking

SECONDS = 180
RESOURCES = {"cpu_shares": 300, "memory_limit_in_bytes": 64 << 20}
HOST_NETWORK = {"namespace_options": {"network": 2}}
MASKS = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{13}\b"), "SHORT"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z| ?[+-]\d\d:?\d\d)( \w+)?"), "TIME"),
    (re.compile(r"(?:\d+ \w+|Less than a second|About an? \w+) ago"), "AGE"),
    (re.compile(r'("(?:pid|ttyS?|usageNanoCores|usageCoreNanoSeconds|value|timestamp|inode\w*)": )"?\d+"?'), r"\1N"),
    (re.compile(r"\b\d+(\.\d+)?([kMG]?B)\b"), "SIZE"),
    (re.compile(r"/proc/\d+/"), "/proc/PID/"),
    (re.compile(r"[EW]\d{4} [\d:.]+ +\d+ "), "LOGGED "),
)
"""What differs between two pods: identifiers, times, and amounts of the moment."""


class Crictl:
    """crictl on the socket of a runtime, or on that of the proxy.

    Attributes:
        printed    each command with its exit status and its output, masked
    """

    def __init__(self, socket: Path, folder: Path) -> None:
        self._folder = folder
        self._command = [str(CRICTL), "--config", str(folder / "crictl.yaml"), "--runtime-endpoint", f"unix://{socket}"]
        (folder / "crictl.yaml").write_text("timeout: 60\n")
        self.printed: list[str] = []

    def run(self, *words: str, given: str | None = None) -> str:
        """Run a command; what it wrote to its output."""
        done = subprocess.run(
            [*self._command, *words], input=given, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        self.printed.append(masked(f"$ {' '.join(words)}\n{done.returncode}\n{done.stdout}{done.stderr}", self._folder))
        return done.stdout.strip()

    def follow_events(self) -> "Events":
        """Follow the runtime's stream of events; a runtime without this call ends it at once."""
        return Events([*self._command, "events", "--output", "json"])


class Events:
    """The output of `crictl events`.

    Attributes:
        seen    identifier of a container or sandbox, and the kind of its event, in order
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.seen: list[tuple[str, str]] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        text = ""
        for line in self._process.stdout:
            text += line
            try:
                event: Any = json.loads(text)
            except ValueError:
                continue
            self.seen.append((event["containerId"], event["containerEventType"]))
            text = ""

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        """End the command."""
        self._process.kill()
        self._process.wait()
        self._thread.join()


def masked(text: str, folder: Path) -> str:
    """The text without what differs between two pods; runs of spaces count as one."""
    text = text.replace(str(folder), "FOLDER")
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    return re.sub(r" +", " ", text)


def life_of_a_pod(socket: Path, folder: Path, cgroup_parent: str) -> list[str]:
    """Run one pod from its sandbox to its removal; what crictl printed."""
    logs = folder / "logs"
    logs.mkdir(parents=True)
    pod, container = folder / "pod.json", folder / "container.json"
    pod.write_text(
        json.dumps(
            {
                "metadata": {"name": "web", "uid": "uid-1", "namespace": "default"},
                "labels": {"app": "web"},
                "log_directory": str(logs),
                "linux": {"cgroup_parent": cgroup_parent, "security_context": HOST_NETWORK},
            }
        )
    )
    container.write_text(
        json.dumps(
            {
                "metadata": {"name": "main"},
                "image": {"image": IMAGE},
                "command": ["/bin/sh", "-c", "echo started $COLOUR; exec sleep 1000"],
                "envs": [{"key": "COLOUR", "value": "blue"}],
                "log_path": "main.log",
                "linux": {"resources": RESOURCES, "security_context": HOST_NETWORK},
            }
        )
    )
    crictl = Crictl(socket, folder)
    crictl.run("version")
    events = crictl.follow_events()

    def is_followed() -> bool:
        """Whether the events of a sandbox come; crictl does not tell when it has begun to listen."""
        crictl.run("rmp", "--force", crictl.run("runp", str(pod)))
        return bool(events.seen) or events.has_ended

    try:
        until_blocking(is_followed, "the events are followed")
        del crictl.printed[1:]
        sandbox = crictl.run("runp", str(pod))
        crictl.run("pods")
        identity = crictl.run("create", sandbox, str(container), str(pod))
        crictl.run("ps", "--all")
        crictl.run("start", identity)
        crictl.run("ps")
        crictl.run("exec", "--sync", identity, "/bin/busybox", "echo", "inside")
        crictl.run("exec", "--sync", identity, "/bin/busybox", "cat", "/none")
        crictl.run("exec", "--interactive", identity, "/bin/busybox", "head", "-n1", given="through the stream\n")
        until_blocking(lambda: "started" in (logs / "main.log").read_text(), "the container has written its log")
        crictl.run("logs", identity)
        crictl.run("update", "--cpu-share", "400", identity)
        crictl.run("inspect", identity)
        crictl.run("inspectp", sandbox)
        crictl.run("stats", "--output", "json", identity)
        crictl.run("statsp", "--output", "json", sandbox)
        crictl.run("images")
        crictl.run("inspecti", IMAGE)
        crictl.run("imagefsinfo")
        crictl.run("info")
        crictl.run("stop", identity)
        crictl.run("rm", identity)
        crictl.run("inspect", identity)
        crictl.run("stopp", sandbox)
        crictl.run("rmp", sandbox)
        crictl.run("pods")
        crictl.run("ps", "--all")
        last = (sandbox, "CONTAINER_DELETED_EVENT")
        until_blocking(lambda: last in events.seen or events.has_ended, "the last event")
    finally:
        events.end()
    names = {sandbox: "sandbox", identity: "container"}
    told = [f"{names[each]} {kind}" for each, kind in events.seen if each in names]
    return [*crictl.printed, "\n".join(("events:", *told))]
