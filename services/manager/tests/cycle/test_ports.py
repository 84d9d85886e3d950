"""The reference's ports are there by default where a manager has a host of its own, and nowhere else."""

import pytest
from koord_manager.settings import ManagerSettings
from koord_manager.shell.ports import parse_address
from koordcore.values.invalid import InvalidInput


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
