"""What the embedded servers decide before any process starts."""

import json
import os
from pathlib import Path

import pytest
from koordcore.embedded.errors import BinaryNotFoundError, EmbeddedError
from koordcore.embedded.nats_config import NatsServerConfig, NatsUser, UserPermissions, render
from koordcore.embedded.ports import FIRST_PORT, LAST_PORT, free_ports
from koordcore.embedded.postgres_location import Owner, is_traversable
from koordcore.embedded.process import ProcessSpec, RestartPolicy
from koordcore.embedded.server import nats_server_binary, parse_nats_version, require_nats_version
from koordcore.embedded.supervisor import require_startable

BINARY = Path("/somewhere/nats-server")


def spec(name: str, *after: str) -> ProcessSpec:
    return ProcessSpec(name=name, argv=("/bin/true",), after=after)


def test_server_binary_is_the_one_of_this_environment() -> None:
    assert nats_server_binary().name == "nats-server"
    assert nats_server_binary().is_file()


@pytest.mark.parametrize("version", [(2, 10, 22), (2, 12, 0), (1, 99, 0)])
def test_server_without_suitable_batches_is_refused_with_both_versions(version: tuple[int, int, int]) -> None:
    with pytest.raises(BinaryNotFoundError, match=rf"{version[0]}\.{version[1]}\.{version[2]}.*2\.14\.0"):
        require_nats_version(version, binary=BINARY)


@pytest.mark.parametrize("version", [(2, 14, 0), (2, 15, 1), (3, 0, 0)])
def test_newer_servers_are_accepted(version: tuple[int, int, int]) -> None:
    require_nats_version(version, binary=BINARY)


def test_version_is_read_from_what_the_server_prints() -> None:
    assert parse_nats_version("nats-server: v2.15.1\n", binary=BINARY) == (2, 15, 1)
    with pytest.raises(BinaryNotFoundError, match="no version"):
        parse_nats_version("nats-server", binary=BINARY)


def test_empty_allow_list_allows_nothing(tmp_path: Path) -> None:
    user = NatsUser(
        name="auditor", public_key="U1", permissions=UserPermissions(subscribe_allow=("a.>",), subscribe_deny=("a.b",))
    )
    text = render(NatsServerConfig(directory=tmp_path, port=1, monitor_port=2, users=(user,)))
    rendered = json.loads(text)["accounts"]["KOORD"]["users"][0]
    assert rendered == {
        "nkey": "U1",
        "permissions": {"publish": {"deny": [">"]}, "subscribe": {"allow": ["a.>"], "deny": ["a.b"]}},
    }


def test_server_listens_on_loopback_only(tmp_path: Path) -> None:
    rendered = json.loads(render(NatsServerConfig(directory=tmp_path, port=4222, monitor_port=8222)))
    assert (rendered["listen"], rendered["http"]) == ("127.0.0.1:4222", "127.0.0.1:8222")
    assert rendered["jetstream"]["sync_interval"] == "always"


def test_free_ports_are_distinct_and_never_given_out_twice() -> None:
    ports = free_ports(20) + free_ports(20)
    assert len(set(ports)) == 40
    assert all(FIRST_PORT <= port < LAST_PORT for port in ports)


def test_back_off_doubles_up_to_its_bound() -> None:
    policy = RestartPolicy(first_delay_seconds=0.5, max_delay_seconds=3)
    assert [policy.delay_seconds(n) for n in range(5)] == [0.5, 1, 2, 3, 3]
    assert policy.delay_seconds(10_000) == 3


def test_processes_in_any_declared_order_are_startable() -> None:
    specs = (spec("agent", "nats"), spec("projector", "nats", "postgres"), spec("postgres"), spec("nats"))
    assert require_startable(specs) == specs


@pytest.mark.parametrize(
    ("specs", "complaint"),
    [
        ((spec("nats"), spec("nats")), "same name: nats"),
        ((spec("agent", "nats"),), "agent.after names nats"),
        ((spec("a", "b"), spec("b", "a"), spec("c")), "wait for each other: a, b"),
    ],
)
def test_stack_that_cannot_start_is_refused_with_the_reason(specs: tuple[ProcessSpec, ...], complaint: str) -> None:
    with pytest.raises(EmbeddedError, match=complaint):
        require_startable(specs)


def test_private_folder_on_the_way_is_not_traversable_for_others(tmp_path: Path) -> None:
    me = Owner(uid=os.geteuid(), gid=os.getegid())
    stranger = Owner(uid=os.geteuid() + 1, gid=os.getegid() + 1)
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    assert is_traversable(private / "not" / "there", me)
    assert not is_traversable(private / "not" / "there", stranger)
    assert is_traversable(Path("/"), stranger)
