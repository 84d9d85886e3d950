"""A service at the addresses of a component of Kubernetes: plain ports, the secure one, flags without effect."""

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
from koordcore.bus.setup.tls_files import ensure_tls_files
from koordcore.embedded.ports import free_ports
from koordcore.service.component import Address, ComponentSettings, serve_as_component
from koordcore.service.run import Shell
from koordcore.service.web.http import cipher_names
from koordcore.values.invalid import InvalidInput
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from support.running_service import running_service
from support.until import DEADLINE_SECONDS


class DemoSettings(ComponentSettings):
    """A component without settings of its own."""

    service: ClassVar[str] = "demo"


async def _page(_: Request) -> PlainTextResponse:
    return PlainTextResponse("page")


async def answers(settings: DemoSettings, plain: list[Address], urls: list[str]) -> list[str]:
    """Return what a page of the running service answers at each URL; the error's class where nobody listens."""

    async def compose(shell: Shell[DemoSettings]) -> None:
        serve_as_component(shell, plain)
        shell.http.routes.append(Route("/page", _page))

    found: list[str] = []
    async with (
        running_service(settings, compose),
        httpx.AsyncClient(verify=False, trust_env=False, timeout=DEADLINE_SECONDS) as client,
    ):
        for url in urls:
            try:
                found.append((await client.get(f"{url}/page")).text)
            except httpx.ConnectError as error:
                found.append(type(error).__name__)
    return found


async def test_the_secure_port_serves_the_same_pages_beside_the_plain_ones(tmp_path: Path) -> None:
    first, second, secure = free_ports(3)
    tls = ensure_tls_files(tmp_path, now=datetime.now(UTC))
    files = {"tls_cert_file": tls.server_certificate, "tls_private_key_file": tls.server_key}
    settings = DemoSettings.model_validate({**files, "bind_address": "127.0.0.1", "secure_port": secure})
    plain = [("127.0.0.1", first), ("127.0.0.1", second), ("127.0.0.1", first)]
    urls = [f"http://127.0.0.1:{first}", f"http://127.0.0.1:{second}", f"https://127.0.0.1:{secure}"]
    assert await answers(settings, plain, urls) == ["page"] * 3
    off = settings.model_copy(update={"secure_port": 0})
    assert await answers(off, plain, urls) == ["page", "page", "ConnectError"]


async def test_http_port_comes_before_the_plain_addresses() -> None:
    own, other = free_ports(2)
    settings = DemoSettings.model_validate({"http_port": own})
    urls = [f"http://127.0.0.1:{own}", f"http://127.0.0.1:{other}"]
    assert await answers(settings, [("127.0.0.1", other)], urls) == ["page", "ConnectError"]


async def test_tls_min_version_refuses_older_clients(tmp_path: Path) -> None:
    tls = ensure_tls_files(tmp_path, now=datetime.now(UTC))
    (port,) = free_ports(1)
    settings = DemoSettings.load(
        [
            f"--http-port={port}",
            f"--http-cert-file={tls.server_certificate}",
            f"--http-key-file={tls.server_key}",
            "--tls-min-version=VersionTLS13",
        ],
        {},
    )

    async def compose(shell: Shell[DemoSettings]) -> None:
        pass

    async with running_service(settings, compose):
        for version, is_accepted in ((ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True)):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.maximum_version = version
            async with httpx.AsyncClient(verify=context, trust_env=False, timeout=DEADLINE_SECONDS) as client:
                try:
                    status = (await client.get(f"https://127.0.0.1:{port}/healthz")).status_code
                except httpx.ConnectError:
                    status = 0
            assert (status == 200) is is_accepted


def test_cipher_suites_have_their_names_in_go() -> None:
    suites = [
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_RSA_WITH_AES_256_CBC_SHA",
        "TLS_AES_128_GCM_SHA256",
    ]
    assert cipher_names(suites) == "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-CHACHA20-POLY1305:AES256-SHA"
    with pytest.raises(InvalidInput, match="TLS_NONE"):
        cipher_names(["TLS_NONE"])


def test_flags_without_effect_take_a_value_unless_they_are_boolean() -> None:
    words = ["--authentication-skip-lookup", "--vmodule", "a=1", "--address", "::1"]
    settings = DemoSettings.load(words, {})
    assert [spec.names[0] for spec in settings.given_idle_flags] == ["authentication-skip-lookup", "vmodule"]
    assert settings.plain_addresses == [("::1", 10251)]
    klog = ["--skip_headers", "--log_file_max_size", "1", "--http-host=::1", "--http_port=1"]
    settings = DemoSettings.load(klog, {})
    assert [spec.names[0] for spec in settings.given_idle_flags] == ["log-file-max-size", "skip-headers"]
    assert (settings.http_host, settings.http_port) == ("::1", 1), "_ in a name counts as -"
    assert DemoSettings.load(["--port=0"], {}).plain_addresses == []
    assert DemoSettings.load(["--bind-address=::1"], {}).plain_addresses == []
