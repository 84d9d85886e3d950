"""Flags of Koordinator's manager: its ports, its profiles, and those that have no effect here."""

from pathlib import Path

import httpx
import pytest
from koord_manager.compose import assemble
from koord_manager.domain.admission.options import WITHOUT_EFFECT
from koord_manager.settings import ManagerSettings
from koord_manager.shell.ports import parse_address
from koordcore.bus.factory import memory_bus
from koordcore.service.leader.lease import SoleLeader
from koordcore.service.run import Shell
from koordcore.values.invalid import InvalidInput
from support.running_service import running_service
from support.until import DEADLINE_SECONDS


@pytest.mark.parametrize(
    ("words", "ports"),
    [
        (["--gateway"], {"metrics": ":8080", "health": ":8000"}),
        (
            ["--gateway", "--metrics-addr=0", "--health-probe-addr=127.0.0.1:9"],
            {"metrics": "0", "health": "127.0.0.1:9"},
        ),
        (["--kubeconfig=file"], {"metrics": "", "health": ""}),
        ([], {"metrics": "", "health": ""}),
        (["--metrics-addr=:9090"], {"metrics": ":9090", "health": ""}),
    ],
)
def test_further_ports_follow_the_flags(words: list[str], ports: dict[str, str]) -> None:
    assert ManagerSettings.load(words, {}).further_ports == ports


def test_an_address_is_a_host_and_a_port() -> None:
    assert parse_address(":8080") == ("0.0.0.0", 8080)
    assert parse_address("[::1]:8000") == ("::1", 8000)
    for wrong in ("8080", ":", "host:99999", "host:-1"):
        with pytest.raises(InvalidInput):
            parse_address(wrong)


def test_an_empty_sync_period_is_the_default_as_published_manifests_write_it() -> None:
    periods = [ManagerSettings.load([f"--sync-period={text}"], {}).sync_period for text in ("", "0", "10m")]
    assert periods == [0, 0, 600]


@pytest.mark.parametrize(("words", "status"), [([], 200), (["--enable-pprof=false"], 404)])
async def test_profiles_of_the_process_are_served_unless_a_flag_switches_them_off(
    words: list[str], status: int
) -> None:
    async def compose(shell: Shell[ManagerSettings]) -> None:
        assemble(shell, memory_bus(), SoleLeader("t"))

    async with (
        running_service(ManagerSettings.load(["--log-level=error", *words], {}), compose) as shell,
        httpx.AsyncClient(base_url=shell.http.url, trust_env=False, timeout=DEADLINE_SECONDS) as client,
    ):
        assert (await client.get("/debug/pprof/stacks")).status_code == status


def test_flags_without_effect_are_accepted_and_documented() -> None:
    text = (Path(__file__).parents[4] / "docs" / "kubernetes.md").read_text()
    for spec in ManagerSettings.idle_flags:
        word = f"--{spec.names[0]}"
        assert ManagerSettings.load([word if spec.is_bool else f"{word}=5m"], {}).given_idle_flags == (spec,)
        assert f"`{word}`" in text


def test_gates_without_effect_are_told_if_they_are_switched_on() -> None:
    text = (Path(__file__).parents[4] / "docs" / "kubernetes.md").read_text()
    gates = ",".join(f"{gate}=true" for gate in (*WITHOUT_EFFECT, "MultiQuotaTree"))
    told = ManagerSettings.load([f"--feature-gates={gates}"], {}).given_idle_gates
    assert {gate.name: gate.no_effect for gate in told} == WITHOUT_EFFECT
    assert all(f"`{gate}`" in text for gate in WITHOUT_EFFECT)
    assert ManagerSettings.load([], {}).given_idle_gates == []
