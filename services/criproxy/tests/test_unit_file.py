"""The systemd unit is valid and hardened, and its flags have the reference's names."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from koord_criproxy.settings import CriProxySettings
from koordcore.service.flags import render_help
from koordcore.service.settings import InvalidSettings

UNIT: Final = Path(__file__).parents[3] / "deploy" / "systemd" / "koord-criproxy.service"
REQUIRED: Final = {
    "Type": "notify",
    "Restart": "always",
    "RestartSec": "1",
    "LimitNOFILE": "65536",
    "OOMScoreAdjust": "-999",
    "After": "containerd.service",
    "Before": "kubelet.service",
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "RuntimeDirectory": "koord-runtimeproxy",
    "ConfigurationDirectory": "runtime/hookserver.d",
    "StateDirectory": "koord-criproxy",
}
FLAGS: Final = {
    "koord-runtimeproxy-endpoint": "/run/x.sock",
    "remote-runtime-service-endpoint": "/run/crio/crio.sock",
    "remote-image-service-endpoint": "/run/images.sock",
    "backend-runtime-mode": "Docker",
    "runtime-hook-server-key": "example.com/skip",
    "runtime-hook-server-val": "yes",
}
EXPOSURE: Final = "30"
"""Largest exposure that `systemd-analyze security` may find, in tenths; above 40 it is no longer called OK."""


def test_unit_has_the_required_settings_and_its_folders_are_the_defaults() -> None:
    found = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    assert found.items() >= REQUIRED.items()
    defaults = CriProxySettings.load([], {})
    assert defaults.koord_runtimeproxy_endpoint.parent == Path("/var/run") / REQUIRED["RuntimeDirectory"]
    assert defaults.hook_server_dir == Path("/etc") / REQUIRED["ConfigurationDirectory"]
    assert defaults.state_dir == Path("/var/lib") / REQUIRED["StateDirectory"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_accepts_the_unit_and_finds_it_hardened(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name  # the program is not installed here
    unit.write_text(UNIT.read_text().replace("ExecStart=/usr/local/bin/koord-criproxy", "ExecStart=/bin/true"))
    verified = analyze("verify", str(unit))
    assert (verified.returncode, UNIT.name in verified.stderr) == (0, False), verified.stderr
    judged = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", str(unit))
    assert judged.returncode == 0, judged.stdout


@pytest.mark.parametrize("dashes", ["-", "--"])
def test_flags_of_the_reference_are_accepted_with_one_and_two_dashes(dashes: str) -> None:
    words = [f"{dashes}{name}={value}" for name, value in FLAGS.items()]
    settings = CriProxySettings.load(words, {})
    assert {name: str(getattr(settings, name.replace("-", "_"))) for name in FLAGS} == FLAGS
    shown = render_help("koord-criproxy", CriProxySettings.about, CriProxySettings.flag_specs())
    assert [name for name in FLAGS if f"--{name} " not in shown] == []


def test_unknown_mode_ends_the_process() -> None:
    with pytest.raises(InvalidSettings, match="'Containerd' or 'Docker', got 'containerd'"):
        CriProxySettings.load(["--backend-runtime-mode=containerd"], {})


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False, timeout=60)
