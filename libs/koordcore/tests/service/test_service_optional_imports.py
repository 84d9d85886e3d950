"""Services on each node leave optional parts of their libraries out of memory."""

import subprocess
import sys

import pytest
from koordcore.service.optional_imports import OPTIONAL


def _loaded(service: str) -> set[str]:
    code = f"import {service}.__main__, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("service", ["koord_agent", "koord_devicediscovery"])
def test_a_service_of_each_node_loads_no_optional_package(service: str) -> None:
    assert not _loaded(service) & {*OPTIONAL, "numpy"}


def test_extensions_can_import_them_afterwards() -> None:
    code = "import koord_agent.__main__, aiohttp, rich.console, nats.aio.transport as t; print(t.aiohttp)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"
