"""Commands of pages that need a stack on this machine and something beside it, or that stand in sentences."""

import json
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from koordcore.values.timestamps import rfc3339
from support.guide import Command, Reader
from support.pages import DOCS, ReaderElsewhere, rest_of
from support.servers import server_directory
from support.storage import s3_bucket
from support.until import until_blocking

pytestmark = [
    pytest.mark.deep,
    pytest.mark.slow,
    pytest.mark.nats,
    pytest.mark.postgres,
    pytest.mark.xdist_group("guide"),
]

MEASUREMENTS = ("python -m tests.bench gateway --scale 0.005", "python -m tests.bench criproxy --scale 0.02")
"""Measurements that sentences name, on a small scale."""
IN_SENTENCES = (
    "koord --help",
    "koord status",
    "koord doctor",
    "koord bus streams",
    "koord bus consumers",
    "koord bus dlq list",
    "koord events --since 1",
    "koord events --kind drift --since 1h",
    "koord get migrations -o wide",
    "koord audit --node node-1 -o json",
    "koord audit --requests",
    "koord audit --pod $POD",
    "koord explain pod $POD --uid $POD_UID",
    "koord fit -f examples/pod.yaml --max",
    "koord replay --to 10",
    "koord replay --to 10 --whole",
    "koord node doctor",
    "curl -sS -X POST -H 'Content-Type: application/json' $(koord status | sed -n 's/.*dashboard //p')admin/rebuild",
    "koord verify --whole",
)
"""Commands in sentences of the pages, with values in the places of names. They run in this order on one stack."""
PAUSED = """\
apiVersion: scheduling.koordinator.sh/v1alpha1
kind: PodMigrationJob
metadata: {{name: paused}}
spec: {{paused: true, podRef: {{namespace: default, name: {pod}}}}}
"""


@pytest.fixture
def folder() -> Generator[Path]:
    with server_directory() as found:
        yield found


def test_the_commands_about_migrations_and_those_in_sentences(folder: Path) -> None:
    reader = Reader(folder, {"KOORD_VAR": str(folder / "var")})
    try:
        reader.follow(DOCS / "migrations.md")
        moved = json.loads(reader.run("koord get migrations -o json"))["items"][0]["spec"]["podRef"]
        reader.run(f"export POD={moved['name']}")
        reader.run(f"export POD_UID={moved['uid']}")
        for command in IN_SENTENCES:
            reader.run_until_it_succeeds(Command(command, ""))

        pods = json.loads(reader.run("koord get pods -o json"))["items"]
        (folder / "paused.yaml").write_text(PAUSED.format(pod=pods[0]["metadata"]["name"]))
        reader.run("koord apply -f paused.yaml")
        reader.run("koord deschedule --abort paused")
        until_blocking(lambda: "paused" not in reader.run("koord get migrations"), "the job is gone")
    finally:
        reader.run("koord down || true")


@pytest.mark.parametrize("command", MEASUREMENTS, ids=lambda command: command.split()[3])
def test_a_measurement_runs_on_a_small_scale(folder: Path, command: str) -> None:
    assert "failed" not in Reader(folder, {}).run(command)


def test_the_commands_about_backups(folder: Path) -> None:
    later = rfc3339(datetime.now(UTC) + timedelta(hours=1))
    with s3_bucket("backups", "archives"):
        places = {"2026-11-23T08:15:00Z": later}
        reader = ReaderElsewhere(folder, {"KOORD_VAR": str(folder / "var")}, places)
        try:
            reader.follow(rest_of("backup.md", folder / "pages"))
        finally:
            reader.run("koord down --var restored; koord down || true")
