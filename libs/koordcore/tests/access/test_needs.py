"""Every HTTP route in the source of a service has an entry in the table of needs."""

import re
from pathlib import Path

import pytest
from koordcore.service.access.needs import NEEDS, UNLISTED, Role, need_of

ROOT = Path(__file__).parents[4]
SOURCES = [*ROOT.glob("libs/*/src"), *ROOT.glob("services/*/src")]
ROUTE = re.compile(r'\bRoute\("(?P<path>/[^"]*)"[^)]*?(?:methods=\[(?P<methods>[^\]]*)\])?\)')
ENDPOINT = re.compile(r'Endpoint\(\s*path="(?P<path>/[^"]*)".*?\n(?P<indent> *)\),?\n', re.DOTALL)


def routes_of_the_source() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for file in (file for source in SOURCES for file in source.rglob("*.py")):
        text = file.read_text()
        for route in ROUTE.finditer(text):
            methods = re.findall(r"\w+", route["methods"] or "GET")
            found += [(method, route["path"]) for method in methods]
        for endpoint in ENDPOINT.finditer(text):
            found.append(("POST" if 'method="POST"' in endpoint[0] else "GET", endpoint["path"]))
    return found


def test_every_route_in_the_source_is_declared() -> None:
    routes = routes_of_the_source()
    assert len(routes) > 45
    examples = [(method, re.sub(r"\{[^}]*\}", "x", path)) for method, path in routes]
    assert [route for route in examples if need_of(*route) is UNLISTED] == []


def test_every_declared_change_is_audited_and_needs_operate() -> None:
    changes = [need for need in NEEDS if need.role is not None and set(need.methods) - {"GET"}]
    assert len(changes) > 5
    assert all(need.role is Role.OPERATE and need.is_audited for need in changes)


def test_no_table_entry_is_declared_twice() -> None:
    declared = [(method, need.path) for need in NEEDS for method in need.methods]
    assert len(set(declared)) == len(declared)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nothing"),
        ("POST", "/api/pods"),
        ("DELETE", "/v1/objects/pods/a"),
        ("POST", "/v1/apply/"),
        ("POST", "//v1/apply"),
        ("GET", "/healthz/x"),
        ("POST", "/healthz"),
        ("PUT", "/assets/x"),
        ("GET", "/validate-pod"),
    ],
)
def test_what_is_not_declared_needs_operate(method: str, path: str) -> None:
    assert need_of(method, path).role is Role.OPERATE


def test_head_needs_what_get_needs() -> None:
    assert need_of("HEAD", "/api/pods") is need_of("GET", "/api/pods")
