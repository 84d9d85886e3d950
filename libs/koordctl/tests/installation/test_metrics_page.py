"""The page with metrics of a command: silent clients, rotated certificates, addresses."""

import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

import pytest
import typer
from koordcore.bus.setup.tls_files import TlsFiles, ensure_tls_files
from koordcore.embedded.ports import LOOPBACK, free_ports
from koordctl.installation.nightly import address_of, served_metrics
from prometheus_client import CollectorRegistry, Gauge
from support.until import DEADLINE_SECONDS


@pytest.fixture
def registry() -> CollectorRegistry:
    found = CollectorRegistry()
    Gauge("answer", "The answer", registry=found).set(42)
    return found


@pytest.fixture
def address() -> tuple[str, int]:
    (port,) = free_ports(1)
    return LOOPBACK, port


def certificate_of(files: TlsFiles, address: tuple[str, int]) -> bytes | None:
    context = ssl.create_default_context(cafile=str(files.ca))
    with (
        socket.create_connection(address, DEADLINE_SECONDS) as connection,
        context.wrap_socket(connection, server_hostname="localhost") as secure,
    ):
        return secure.getpeercert(binary_form=True)


def page_at(url: str, files: TlsFiles | None = None) -> str:
    context = None if files is None else ssl.create_default_context(cafile=str(files.ca))
    with urlopen(url, timeout=DEADLINE_SECONDS, context=context) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("is_secure", [False, True])
def test_the_page_is_served_while_other_clients_say_nothing_or_nonsense(
    registry: CollectorRegistry, address: tuple[str, int], is_secure: bool, tmp_path: Path
) -> None:
    files = ensure_tls_files(tmp_path, now=datetime.now(UTC))
    url = f"{'https' if is_secure else 'http'}://localhost:{address[1]}/metrics"
    with (
        served_metrics(registry, address, files.server_certificate if is_secure else None),
        socket.create_connection(address),
        socket.create_connection(address) as rude,
    ):
        rude.sendall(b"nonsense\r\n\r\n")
        assert "answer 42.0" in page_at(url, files if is_secure else None)
    with pytest.raises(OSError, match="refused"):
        page_at(url)


def test_the_page_has_the_limits_of_all_servers(registry: CollectorRegistry, address: tuple[str, int]) -> None:
    with served_metrics(registry, address, None), socket.create_connection(address) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n" + b"a:\r\n" * 20_000)
        assert client.recv(100).startswith(b"HTTP/1.1 431 ")


def test_a_rotated_certificate_is_served_without_a_restart(
    registry: CollectorRegistry, address: tuple[str, int], tmp_path: Path
) -> None:
    files = ensure_tls_files(tmp_path, now=datetime.now(UTC))
    with served_metrics(registry, address, files.server_certificate) as reload:
        before = certificate_of(files, address)
        assert not reload()
        files.server_key.unlink()
        ensure_tls_files(tmp_path, now=datetime.now(UTC))
        assert reload()
        assert certificate_of(files, address) != before


def test_an_address_in_use_and_a_broken_certificate_end_the_command(
    registry: CollectorRegistry, address: tuple[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        served_metrics(registry, address, None),
        pytest.raises(typer.Exit),
        served_metrics(registry, address, None),
    ):
        pass
    assert f"--listen {LOOPBACK}:{address[1]}: Address already in use" in capsys.readouterr().err
    files = ensure_tls_files(tmp_path, now=datetime.now(UTC))
    files.server_certificate.write_text("broken")
    with pytest.raises(typer.Exit), served_metrics(registry, address, files.server_certificate):
        pass
    assert f"{files.server_certificate} and its key: " in capsys.readouterr().err


def test_an_address_has_a_host_and_a_port(capsys: pytest.CaptureFixture[str]) -> None:
    assert address_of("0.0.0.0:8080") == ("0.0.0.0", 8080)
    assert address_of("[::1]:8080") == ("::1", 8080)
    for wrong in ("8080", ":8080", "localhost:", "localhost:http", "localhost:65536"):
        with pytest.raises(typer.Exit):
            address_of(wrong)
        assert f"--listen must be HOST:PORT, got '{wrong}'" in capsys.readouterr().err
