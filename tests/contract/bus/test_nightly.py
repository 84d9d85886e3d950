"""The nightly job of k8s/base/nightly.yaml, step by step as its pod runs it, and that of docker-compose.yml.

They run with their own command lines, environment, keys and volumes. Only addresses and mount points are replaced.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml
from koordcore.bus.factory import bus_on
from koordcore.embedded.ports import LOOPBACK, free_ports
from koordcore.embedded.process import http_ok
from koordcore.embedded.server import nats_server_binary
from koordcore.events.objects import PodSpecDeleted
from koordcore.ports.eventlog import Appended
from support.bus.bus_worlds import sealed
from support.bus.installed_server import NAMES, Site, koord
from support.until import DEADLINE_SECONDS, until

pytestmark = [pytest.mark.deep, pytest.mark.nats, pytest.mark.slow]

Json = dict[str, Any]
ROOT: Final = Path(__file__).parents[3]
MANIFEST: Final = ROOT / "k8s" / "base" / "nightly.yaml"
CHECKS: Final = ["compare-copies", "backup", "drill", "archive"]
VERIFY: Final = "verify"
"""The check that asks the services, which do not run here. `docs/backup.md` is executed with them."""
AGE: Final = re.compile(r" \d+\.\d h ago")
DRILL_PORT: Final = "4222"


class Night:
    """One run of the job: its containers, and a folder for each volume of its pod.

    Attributes:
        steps: Name -> container, in the order in which they run.
        volumes: Folder with a folder for each volume that is not a Secret.
    """

    def __init__(self, site: Site, folder: Path) -> None:
        jobs = (item for item in yaml.safe_load_all(MANIFEST.read_text()) if item["kind"] == "CronJob")
        pod: Json = next(jobs)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        self.steps: dict[str, Json] = {each["name"]: each for each in [*pod["initContainers"], *pod["containers"]]}
        self.volumes = folder
        self._site = site
        self._secrets = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
        self._port, self.monitor = map(str, free_ports(2))

    def start_server(self) -> subprocess.Popen[bytes]:
        """Start the server of the drill."""
        words = self._words("drill-server")
        words[0] = str(nats_server_binary())
        return subprocess.Popen([*words, "--port", self._port, "--http_port", self.monitor], stderr=subprocess.DEVNULL)

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        """Run one step to its end."""
        container = self.steps[name]
        given = {each["name"]: self._placed(container, each["value"]) for each in container.get("env", [])}
        if "KOORD_NATS" in given:
            given["KOORD_NATS"] = self._site.url
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run(
            self._words(name),
            env={**given, "PATH": path, "KOORD_CLUSTER": NAMES.cluster, "HOME": str(self.volumes)},
            capture_output=True,
            text=True,
            check=False,
        )

    def _words(self, name: str) -> list[str]:
        container = self.steps[name]
        words = [self._placed(container, word) for word in [*container["command"], *container.get("args", [])]]
        old_enough = ["--keep=0h"] if name == "archive" else []  # the facts of the test are some seconds old
        return [word.replace(f"{LOOPBACK}:{DRILL_PORT}", f"{LOOPBACK}:{self._port}") for word in (*words, *old_enough)]

    def _placed(self, container: Json, text: str) -> str:
        """Return a text with the folders of the mounted volumes in place of the mount points."""
        places = {mount["mountPath"]: str(self._folder(mount)) for mount in container["volumeMounts"]}
        return re.sub("|".join(map(re.escape, places)), lambda found: places[found[0]], text)

    def _folder(self, mount: Json) -> Path:
        secret = self._secrets.get(mount["name"])
        if secret is not None:
            return self._site.folder / secret.removeprefix("koord-")
        folder = self.volumes / mount["name"] / mount.get("subPath", "")
        folder.mkdir(parents=True, exist_ok=True)
        return folder


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[Site]:
    found = Site(tmp_path / "keys")
    found.create("--node", "worker-1", "--serving", "auditor=nightly")
    found.start()
    try:
        await until(lambda: http_ok(f"http://{LOOPBACK}:{found.monitor}/healthz?js-enabled-only=true"))
        koord("bus", "bootstrap", env=found.bootstrap_environment())
        async with found.connected("manager") as connection:
            event = sealed("podspec", "p1", PodSpecDeleted(namespace="d", name="web"), 0, "one")
            assert isinstance(await bus_on(connection, NAMES).events.append([event]), Appended)
        yield found
    finally:
        found.kill()


@pytest.fixture
def night(site: Site, tmp_path: Path) -> Night:
    return Night(site, tmp_path / "volumes")


async def test_every_step_of_the_nightly_job_does_its_work_and_a_broken_backup_ends_it(night: Night) -> None:
    server = night.start_server()
    try:
        await until(lambda: http_ok(f"http://{LOOPBACK}:{night.monitor}/healthz?js-enabled-only=true"))
        said: dict[str, str] = {}
        for name in [each for each in night.steps if each not in ("drill-server", VERIFY)]:
            done = night.run(name)
            assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
            said[name] = done.stdout
        backup = (night.volumes / "backups" / "backups" / "newest").resolve()
        assert any(backup.iterdir())
        assert any((night.volumes / "backups" / "archive").iterdir())
        assert list(said) == CHECKS
        assert "equal" in said["drill"]
        assert not [
            file for file in (night.volumes / "backups").rglob("*") if file.is_file() and file.stat().st_mode & 0o077
        ]
        silent = night.run(VERIFY)
        assert (silent.returncode, "projector" in silent.stderr) == (1, True)

        largest = max(backup.glob("*.s2"), key=lambda file: file.stat().st_size)
        largest.write_bytes(largest.read_bytes()[:-1])
        broken = night.run("drill")
        assert broken.returncode == 1
        assert "size: must be" in broken.stderr
    finally:
        server.kill()
        server.wait()


class ComposeNight:
    """The service `nightly` of docker-compose.yml with its server of drills, as processes of this machine.

    Attributes:
        folder: Its backups, archive and results.
        url: Address of its metrics.
    """

    def __init__(self, site: Site, folder: Path) -> None:
        self._services: Json = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        drills, self._monitor, port = map(str, free_ports(3))
        self.folder = folder
        self.url = f"https://localhost:{port}"
        self._drills = drills
        self._replaced = {
            "/nights": str(folder / "nights"),
            "/etc/koord": str(site.folder),
            "drill-server:4222": f"{LOOPBACK}:{drills}",
            "0.0.0.0:8080": f"{LOOPBACK}:{port}",
            "/data": str(folder / "drills"),
            "--at=02:30": f"--at={datetime.now(UTC) + timedelta(hours=12):%H:%M}",  # no second night during the test
        }
        self.environment = {
            "KOORD_CLUSTER": NAMES.cluster,
            "KOORD_NATS": site.url,
            "KOORD_NIGHTLY": self.url,
            "KOORD_CA": str(site.folder / "operator" / "ca.crt"),
            "KOORD_VAR": str(folder),
        }

    def words(self, service: str) -> list[str]:
        """The command line of a service."""
        found = "|".join(map(re.escape, self._replaced))
        words: list[str] = self._services[service]["command"]
        return [re.sub(found, lambda match: self._replaced[match[0]], word) for word in words]

    def start(self) -> list[subprocess.Popen[bytes]]:
        """Start the server of drills and `nightly`, and return the processes."""
        server = [str(nats_server_binary()), *self.words("drill-server"), "-a", LOOPBACK]
        ports = ["-p", self._drills, "-m", self._monitor]
        nightly = [sys.executable, "-m", "koordctl", *self.words("nightly")[1:]]
        return [
            subprocess.Popen([*server, *ports], stderr=subprocess.DEVNULL),
            subprocess.Popen(nightly, env={**os.environ, **self.environment}),
        ]

    def once(self) -> int:
        """Run the checks now, beside the service, and return the exit status."""
        words = [each for each in self.words("nightly")[1:] if not each.startswith("--listen")]
        run = [sys.executable, "-m", "koordctl", *words, "--once"]
        return subprocess.run(run, env={**os.environ, **self.environment}, check=False).returncode

    def findings(self) -> dict[str, str]:
        """Check -> verdict about it of `koord doctor`; empty while the metrics are not served."""
        run = [sys.executable, "-m", "koordctl", "doctor", "-o", "json"]
        done = subprocess.run(run, env={**os.environ, **self.environment}, capture_output=True, check=False)
        found = {each["check"]: each for each in json.loads(done.stdout)}
        return {
            check: found[f"nightly {check}"]["verdict"] + ": " + AGE.sub("", found[f"nightly {check}"]["told"])
            for check in (*CHECKS, VERIFY)
            if f"nightly {check}" in found
        }

    def streams_of_drills(self) -> int:
        """Number of streams on the server of the drills."""
        page = httpx.get(f"http://{LOOPBACK}:{self._monitor}/jsz", trust_env=False, timeout=DEADLINE_SECONDS).json()
        return int(page["streams"])


async def test_the_nightly_service_of_compose_serves_the_results_and_doctor_shows_them(
    site: Site, tmp_path: Path
) -> None:
    night = ComposeNight(site, tmp_path)
    server, service = night.start()
    try:
        nights = tmp_path / "nights"
        results = nights / "results.json"
        await until(lambda: results.exists() and b'"verify":{"ran":0.0' not in results.read_bytes(), seconds=300)
        good = "ok: has succeeded"
        silent = {VERIFY: "broken: failed in its last run"}
        assert night.findings() == {**dict.fromkeys(CHECKS, good), **silent}
        (backup,) = (nights / "backups").iterdir()
        assert night.streams_of_drills() == 0

        (nights / "archive").mkdir(exist_ok=True)
        (nights / "archive" / "archive.json").write_text("{")
        assert night.once() == 1
        assert len(list(backup.parent.iterdir())) == 2
        told = json.loads(results.read_bytes())
        assert [check for check in CHECKS if told[check]["ran"] != told[check]["succeeded"]] == ["archive"]
        failed = {**dict.fromkeys(CHECKS, good), **silent, "archive": "broken: failed in its last run"}
        await until(lambda: night.findings() == failed)
    finally:
        for process in (server, service):
            process.kill()
            process.wait()
