"""Each example of a Reservation does on a real stack what its text says."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.koord_command import KoordCommand
from support.servers import server_directory
from support.until import until_blocking

pytestmark = [
    pytest.mark.deep,
    pytest.mark.slow,
    pytest.mark.nats,
    pytest.mark.postgres,
    pytest.mark.xdist_group("embedded-stack"),
]

EXAMPLES = Path(__file__).parents[2] / "examples"
PODS_OF = {
    "single-owner": ["checkout"],
    "workload-owner": ["search-v1-x", "search-v2-x"],
    "label-owner": ["ranking-0", "ranking-1"],
    "expiry": [],
    "allocate-once": ["index-0", "index-1"],
    "cpu-bind": ["trading"],
    "gpu": ["training"],
    "pre-allocation": ["session-0"],
}
"""Name of the example and of its Reservation -> its pods."""


class Stack(KoordCommand):
    """The command with what these examples ask."""

    def status_of(self, reservation: str) -> dict[str, Any]:
        """The status of a Reservation."""
        found: dict[str, Any] = self.ask("get", "reservation", reservation).get("status", {})
        return found

    def owners(self, reservation: str) -> list[str]:
        """Names of the pods that use a Reservation."""
        return sorted(owner["name"] for owner in self.status_of(reservation)["currentOwners"])


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A stack on which all examples were applied and have come to rest."""
    with server_directory() as folder:
        stack = Stack(folder / "var")
        try:
            stack.run("up", "--no-agent", "--simulated-nodes", "3")
            stack.run("apply", "-f", str(EXAMPLES / "devices.yaml"))
            for name in PODS_OF:
                stack.run("apply", "-f", str(EXAMPLES / "reservations" / f"{name}.yaml"))
            for pod in (pod for pods in PODS_OF.values() for pod in pods):
                until_blocking(lambda pod=pod: bool(stack.ask("get", "pod", pod)["spec"].get("nodeName")))
            yield stack
        finally:
            stack.run("down")


def test_there_is_a_file_for_each_feature() -> None:
    on_kubernetes = {"operating-mode"}  # see test_reservations_on_kubernetes.py
    assert {path.stem for path in (EXAMPLES / "reservations").glob("*.yaml")} == set(PODS_OF) | on_kubernetes


@pytest.mark.parametrize(
    ("name", "phase", "owners"),
    [
        ("single-owner", "Succeeded", ["checkout"]),
        ("workload-owner", "Succeeded", ["search-v2-x"]),
        ("label-owner", "Available", ["ranking-0", "ranking-1"]),
        ("cpu-bind", "Available", ["trading"]),
        ("gpu", "Available", ["training"]),
        ("pre-allocation", "Available", ["session-0"]),
    ],
)
def test_the_pods_that_the_text_names_are_the_owners(stack: Stack, name: str, phase: str, owners: list[str]) -> None:
    until_blocking(lambda: stack.status_of(name)["phase"] == phase)

    assert stack.owners(name) == owners
    for owner in owners:
        assert stack.ask("get", "pod", owner)["spec"]["nodeName"] == stack.status_of(name)["nodeName"]


def test_one_cpu_of_the_reservation_for_a_label_stays_reserved(stack: Stack) -> None:
    status = stack.status_of("label-owner")

    assert (status["allocatable"]["cpu"], status["allocated"]["cpu"]) == ("3", "2")
    assert "cpu 2/3" in stack.run("explain", "reservation", "label-owner")


def test_the_timeline_of_a_running_pod_names_the_reservation_that_took_its_place(stack: Stack) -> None:
    until_blocking(lambda: stack.owners("pre-allocation") == ["session-0"])

    steps = [moment["step"] for moment in stack.ask("explain", "pod", "session-0")["moments"]]
    assert steps.index("placed") < steps.index("reallocated")
    text = stack.run("explain", "pod", "session-0")
    assert "pre-allocated by Reservation pre-allocation" in text
    assert "cpu 1 from Reservation pre-allocation" in text


def test_one_pod_consumes_the_reservation_that_allows_one_owner(stack: Stack) -> None:
    until_blocking(lambda: stack.status_of("allocate-once")["phase"] == "Succeeded")

    assert len(stack.owners("allocate-once")) == 1
    assert stack.owners("allocate-once")[0] in PODS_OF["allocate-once"]


def test_the_reservation_without_a_pod_expires_after_three_seconds(stack: Stack) -> None:
    until_blocking(lambda: stack.status_of("expiry")["phase"] == "Failed")

    ready = next(each for each in stack.status_of("expiry")["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Expired")
    assert stack.owners("expiry") == []


@pytest.mark.parametrize(
    ("name", "pod", "key"),
    [
        ("cpu-bind", "trading", "scheduling.koordinator.sh/resource-status"),
        ("gpu", "training", "scheduling.koordinator.sh/device-allocated"),
    ],
)
def test_the_pod_gets_exactly_the_cpus_or_devices_that_were_reserved(
    stack: Stack, name: str, pod: str, key: str
) -> None:
    story = stack.ask("explain", "reservation", name)
    (reserved,) = [moment for moment in story["life"] if moment["step"] == "placed"]
    (placed,) = [moment for moment in stack.ask("explain", "pod", pod)["moments"] if moment["step"] == "placed"]

    assert [line for line in placed["chosen"] if "Reservation" not in line] == reserved["chosen"]
    assert key in placed["annotations"]
    assert story["uses"][0]["from_node"] == {}


def table(text: str, name: str) -> list[dict[str, str]]:
    """Return the rows of the table whose first column has this name."""
    lines = iter(text.splitlines())
    titles = next(re.split(r"\s{2,}", line) for line in lines if line.split()[:1] == [name])
    found: list[dict[str, str]] = []
    for line in lines:
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) != len(titles):
            break
        found.append(dict(zip(titles, cells, strict=True)))
    return found


def test_a_replay_shows_reservations_as_the_projector_has_them_at_that_moment(stack: Stack) -> None:
    until_blocking(lambda: stack.status_of("expiry")["phase"] == "Failed")
    until_blocking(lambda: len(stack.owners("label-owner")) == 2)
    lives = [stack.ask("explain", "reservation", name)["life"] for name in ("label-owner", "expiry", "gpu")]
    placed = [moment["position"] for life in lives for moment in life if moment["step"] == "placed"]
    newest = int(stack.run("replay").split(" to position ")[1].split()[0])

    seen: set[str] = set()
    for position in sorted({*placed, *(each - 1 for each in placed), newest}):
        replayed = table(stack.run("replay", "--to", str(position)), "RESERVATION")
        archived = table(stack.run("get", "reservations", "--as-of", str(position)), "NAME")
        assert [(row["RESERVATION"], row["PHASE"], row["USED / RESERVED"]) for row in replayed] == [
            (row["NAME"], row["PHASE"], row["USED / RESERVED"]) for row in archived
        ]
        seen |= {row["PHASE"] for row in replayed}
    assert seen == {"Pending", "Available", "Succeeded", "Failed"}
