"""The steps of the nightly job in k8s/base/nightly.yaml, run one after the other as its pod does.

Each one runs with its own command line, environment, keys and volumes. Only addresses and mount points are replaced.
"""

import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from koordcore.bus.factory import bus_on
from koordcore.embedded.binaries import nats_server_binary
from koordcore.embedded.ports import LOOPBACK, free_ports
from koordcore.embedded.process import http_ok
from koordcore.events.agents.nodestate import PodsStarted
from koordcore.ports.eventlog import Appended
from support.bus.bus_worlds import sealed
from support.bus.installed_server import NAMES, Site, koord
from support.until import until

pytestmark = [pytest.mark.nats, pytest.mark.slow]

Json = dict[str, Any]
MANIFEST: Final = Path(__file__).parents[3] / "k8s" / "base" / "nightly.yaml"
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
        return [word.replace(f"{LOOPBACK}:{DRILL_PORT}", f"{LOOPBACK}:{self._port}") for word in words]

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
async def night(tmp_path: Path) -> AsyncGenerator[Night]:
    site = Site(tmp_path / "keys")
    site.create("--node", "worker-1")
    site.start()
    try:
        await until(lambda: http_ok(f"http://{LOOPBACK}:{site.monitor}/healthz?js-enabled-only=true"))
        koord("bus", "bootstrap", env=site.bootstrap_environment())
        async with site.connected("agent-worker-1") as connection:
            event = sealed("nodestate", "worker-1", PodsStarted(pods=["a"]), 0, "one")
            assert isinstance(await bus_on(connection, NAMES).events.append([event]), Appended)
        yield Night(site, tmp_path / "volumes")
    finally:
        site.kill()


async def test_every_step_of_the_nightly_job_does_its_work_and_a_broken_backup_ends_it(night: Night) -> None:
    server = night.start_server()
    try:
        await until(lambda: http_ok(f"http://{LOOPBACK}:{night.monitor}/healthz?js-enabled-only=true"))
        said: dict[str, str] = {}
        for name in [each for each in night.steps if each != "drill-server"]:
            done = night.run(name)
            assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
            said[name] = done.stdout
        backup = (night.volumes / "backups" / "backups" / "newest").resolve()
        assert any(backup.iterdir())
        assert any((night.volumes / "backups" / "archive").iterdir())
        assert list(said) == ["compare-copies", "backup", "drill", "archive"]
        assert "equal" in said["drill"]

        largest = max((file for file in backup.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
        largest.write_bytes(largest.read_bytes()[:-1])
        assert night.run("drill").returncode == 1
    finally:
        server.kill()
        server.wait()
