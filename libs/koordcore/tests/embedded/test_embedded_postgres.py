"""A real Postgres: created once, killed, recovered, refused, as root and not."""

import asyncio
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from koordcore.embedded.errors import AlreadyRunningError, EmbeddedError, PortInUseError
from koordcore.embedded.ports import is_port_free
from koordcore.embedded.postgres import PostgresConfig, PostgresServer
from koordcore.embedded.postgres_location import TRAVERSABLE_ROOT, live_postmaster, locate, pointer_file
from koordcore.embedded.server import postgres_installation
from support.servers import run_now, running_postgres, server_directory
from support.until import until

pytestmark = pytest.mark.postgres
ANYBODY_MAY_ENTER = all(folder.stat().st_mode & 0o001 for folder in Path(sys.prefix).absolute().parents)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
LISTENING = "0A"
"""State of a listening socket in /proc/net/tcp."""
PIDFD_GETFD = 438
"""Number of the system call on every Linux architecture."""


@pytest.fixture
def directory() -> Iterator[Path]:
    """A folder that the server's user may traverse."""
    with server_directory() as path:
        yield path


@pytest.fixture
def private_directory(directory: Path) -> Path:
    """A folder that only we may traverse, as below /root."""
    private = directory / "private"
    private.mkdir(mode=0o700)
    return private


def query(dsn: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_each_test_gets_an_empty_database(postgres_dsn: str) -> None:
    assert query(postgres_dsn, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]
    query(postgres_dsn, "CREATE TABLE pod (uid text PRIMARY KEY)")


def test_committed_rows_survive_kill_9_with_an_open_session() -> None:
    with running_postgres(synchronous_commit=True) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE fact (seq int)")
            connection.execute("INSERT INTO fact SELECT generate_series(1, 1000)")
            run_now(server.kill())
        assert not server.is_running
        dsn = server.dsn

        run_now(server.start())

        assert server.dsn == dsn
        assert query(dsn, "SELECT count(*), max(seq) FROM fact") == [(1000, 1000)]
        assert "automatic recovery in progress" in server.log_file.read_text()


@pytest.mark.deep
async def test_start_waits_for_a_backend_that_has_not_noticed_the_kill(directory: Path) -> None:
    server = PostgresServer(PostgresConfig(data_dir=directory / "data"))
    async with server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            backend = connection.info.backend_pid
            os.kill(backend, signal.SIGSTOP)
            await server.kill()
            starting = asyncio.create_task(server.start())
            await until(lambda: "is still in use" in server.log_file.read_text())
            assert not starting.done()
            os.kill(backend, signal.SIGCONT)
            await starting
        assert query(server.dsn, "SELECT 1") == [(1,)]


def duplicate_listener(pid: int, port: int) -> socket.socket:
    """Return a duplicate of the socket with which process `pid` listens, as a worker that it forks has one."""
    inodes = {
        fields[9]
        for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:])
        if fields[1].endswith(f":{port:04X}") and fields[3] == LISTENING
    }
    wanted = {f"socket:[{inode}]" for inode in inodes}
    opened = Path(f"/proc/{pid}/fd").iterdir()
    number = next(int(file.name) for file in opened if str(file.readlink()) in wanted)
    process = os.pidfd_open(pid)
    try:
        copy = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, number, 0)
    finally:
        os.close(process)
    assert copy >= 0, os.strerror(ctypes.get_errno())
    return socket.socket(fileno=copy)


@as_root
@pytest.mark.root
@pytest.mark.skipif(sys.platform != "linux", reason="duplicates a socket through a pidfd")
@pytest.mark.deep
async def test_kill_waits_until_a_forked_worker_has_released_the_port(directory: Path) -> None:
    async with PostgresServer(PostgresConfig(data_dir=directory / "data")) as server:
        assert server.pid is not None
        held = duplicate_listener(server.pid, server.port)
        killing = asyncio.create_task(server.kill())
        await until(lambda: not server.is_running)
        assert not is_port_free(server.port)
        held.close()
        await killing
        await server.start()
        assert query(server.dsn, "SELECT 1") == [(1,)]


async def test_data_outlives_the_server_object_and_its_start_needs_no_initdb(directory: Path) -> None:
    config = PostgresConfig(data_dir=directory / "data")
    async with PostgresServer(config) as first:
        query(first.dsn, "CREATE TABLE kept ()")
    created = (directory / "data" / "PG_VERSION").stat().st_mtime_ns
    async with PostgresServer(config) as second:
        query(second.dsn, "SELECT FROM kept")
        await second.restart()
        query(second.dsn, "SELECT FROM kept")
    assert (directory / "data" / "PG_VERSION").stat().st_mtime_ns == created


@pytest.mark.deep
def test_settings_keep_what_was_committed() -> None:
    with running_postgres(synchronous_commit=False) as server:
        settings = {name: query(server.dsn, f"SHOW {name}")[0][0] for name in ("fsync", "synchronous_commit")}
        assert settings == {"fsync": "on", "synchronous_commit": "off"}


async def test_only_the_password_opens_it_and_only_we_can_read_that(directory: Path) -> None:
    async with PostgresServer(PostgresConfig(data_dir=directory / "data")) as server:
        assert server.password_file.stat().st_mode & 0o777 == 0o600
        assert server.password_file.read_text().strip() not in server.url
        with pytest.raises(psycopg.OperationalError, match="password"):
            query(server.url.replace("koord@", "koord:wrong@"), "SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            query(server.dsn.replace("koord:", "postgres:", 1), "SELECT 1")
        assert query(server.dsn, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == [(False,)]
        assert query(server.dsn, "SHOW listen_addresses") == [("127.0.0.1",)]


@pytest.mark.deep
async def test_lost_password_is_an_error_that_says_what_to_do(directory: Path) -> None:
    server = PostgresServer(PostgresConfig(data_dir=directory / "data"))
    async with server:
        pass
    server.password_file.unlink()
    with pytest.raises(EmbeddedError, match=r"data\.password is missing .* restore the file"):
        await server.start()


async def test_configured_port_in_use_is_named(directory: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken: int = other.getsockname()[1]
        with pytest.raises(PortInUseError, match=f"postgres: port {taken} on 127.0.0.1 is already in use"):
            await PostgresServer(PostgresConfig(data_dir=directory / "data", port=taken)).start()


@pytest.mark.deep
async def test_second_server_on_the_same_data_is_refused(directory: Path) -> None:
    async with PostgresServer(PostgresConfig(data_dir=directory / "data")) as first:
        with pytest.raises(AlreadyRunningError, match=f"process {first.pid}"):
            await PostgresServer(PostgresConfig(data_dir=directory / "data")).start()
        assert query(first.dsn, "SELECT 1") == [(1,)]


@pytest.mark.parametrize("content", ["{pid}\n{data}\n", "", "garbage"])
@pytest.mark.deep
def test_pid_file_of_a_crash_does_not_stop_the_start(directory: Path, content: str) -> None:
    data = directory / "data"
    server = PostgresServer(PostgresConfig(data_dir=data))
    run_now(server.start())
    run_now(server.stop())
    # The crashed server's pid, now another program's of the same user.
    with subprocess.Popen(["/bin/sleep", "60"], user=data.stat().st_uid) as other:
        (data / "postmaster.pid").write_text(content.format(pid=other.pid, data=data))
        assert live_postmaster(data) is None
        run_now(server.start())
        assert live_postmaster(data, status="ready") == server.pid
        run_now(server.stop())
        assert other.poll() is None
        other.kill()


@pytest.mark.deep
async def test_interrupted_initialisation_is_done_again(directory: Path) -> None:
    half_made = directory / "data.new"
    half_made.mkdir()
    (half_made / "PG_VERSION").write_text("16\n")
    async with PostgresServer(PostgresConfig(data_dir=directory / "data")) as server:
        assert query(server.dsn, "SELECT 1") == [(1,)]
    assert not half_made.exists()


@pytest.mark.deep
async def test_unix_socket_serves_without_a_port(directory: Path) -> None:
    config = PostgresConfig(data_dir=directory / "data", socket_directory=directory / "s")
    async with PostgresServer(config) as server:
        assert query(server.dsn, "SHOW listen_addresses") == [("",)]
        assert server.spec().ports == {}
    too_long = PostgresConfig(data_dir=directory / "data", socket_directory=directory / ("s" * 100))
    with pytest.raises(EmbeddedError, match="longer than 100 bytes"):
        await PostgresServer(too_long).start()


@as_root
@pytest.mark.deep
async def test_below_a_private_folder_root_puts_the_data_elsewhere_and_says_where(private_directory: Path) -> None:
    wanted = private_directory / "var" / "postgres"
    server = PostgresServer(PostgresConfig(data_dir=wanted))
    elsewhere = server.location.data
    try:
        async with server:
            query(server.dsn, "CREATE TABLE kept ()")
        assert pointer_file(wanted).read_text() == f"{elsewhere}\n"
        assert elsewhere.is_relative_to(TRAVERSABLE_ROOT)
        assert elsewhere.owner() == "nobody"
        assert not wanted.exists()
        async with PostgresServer(PostgresConfig(data_dir=wanted)) as again:
            query(again.dsn, "SELECT FROM kept")
            shutil.rmtree(private_directory / "var")
            with pytest.raises(AlreadyRunningError, match=f"process {again.pid}"):
                await PostgresServer(PostgresConfig(data_dir=wanted)).start()
        # Who deletes var/ gets an empty store, although the data was elsewhere.
        async with PostgresServer(PostgresConfig(data_dir=wanted)) as empty:
            assert query(empty.dsn, "SELECT FROM pg_tables WHERE tablename = 'kept'") == []
    finally:
        server.wipe()
        assert list(elsewhere.parent.iterdir()) == []
        elsewhere.parent.rmdir()


@as_root
@pytest.mark.deep
def test_binaries_below_a_private_folder_are_copied_once_to_where_the_user_reaches_them(
    private_directory: Path, directory: Path
) -> None:
    wheel = postgres_installation().parent
    package = private_directory / "site" / wheel.name
    shutil.copytree(postgres_installation(), package / "pginstall", symlinks=True)
    if wheel.with_name(f"{wheel.name}.libs").exists():
        shutil.copytree(wheel.with_name(f"{wheel.name}.libs"), package.with_name(f"{wheel.name}.libs"))
    location = locate(directory / "data", package / "pginstall")
    base = location.installation.parent.parent.parent
    try:
        assert base.parent == TRAVERSABLE_ROOT
        assert location.owner is not None
        for program in ("initdb", "postgres", "psql"):
            argv = [location.installation / "bin" / program, "--version"]
            ran = subprocess.run(argv, user=location.owner.uid, group=location.owner.gid, capture_output=True)
            assert b"(PostgreSQL)" in ran.stdout, ran.stderr
        copied = (location.installation / "bin" / "postgres").stat().st_ino
        assert locate(directory / "data", package / "pginstall").installation == location.installation
        assert (location.installation / "bin" / "postgres").stat().st_ino == copied
        assert [entry.name for entry in base.iterdir()] == ["wheel"]
    finally:
        shutil.rmtree(base)


@as_root
def test_folder_of_another_user_below_var_tmp_is_refused(private_directory: Path, directory: Path) -> None:
    wanted = private_directory / "postgres"
    base = locate(wanted, directory).data.parent
    try:
        os.chown(base, 65534, 65534)
        with pytest.raises(EmbeddedError, match=f"{base} .* belongs to uid 65534"):
            locate(wanted, directory)
    finally:
        base.rmdir()


@as_root
@pytest.mark.root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
@pytest.mark.skipif(not ANYBODY_MAY_ENTER, reason="the checkout lies below a folder that other users may not enter")
@pytest.mark.deep
def test_unprivileged_user_runs_it_as_itself(directory: Path) -> None:
    # The interpreter itself may lie below /root: the capability to read everything lets another user run it.
    script = textwrap.dedent(
        """
        import asyncio, os, sys
        from pathlib import Path
        from koordcore.embedded.postgres import PostgresConfig, PostgresServer

        async def main() -> None:
            server = PostgresServer(PostgresConfig(data_dir=Path(sys.argv[1]) / "data"))
            async with server:
                await server.kill()
                await server.start()
                assert server.location.owner is None
                print(os.geteuid(), server.location.data.stat().st_uid, server.is_running)

        asyncio.run(main())
        """
    )
    home = directory / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    setpriv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    capability = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    ran = subprocess.run(
        [*setpriv, *capability, sys.executable, "-c", script, str(home)], capture_output=True, text=True, cwd="/"
    )
    assert ran.stdout.split() == ["65534", "65534", "True"], ran.stderr


@pytest.mark.deep
async def test_cancelled_start_leaves_no_server(directory: Path) -> None:
    server = PostgresServer(PostgresConfig(data_dir=directory / "data"))
    starting = asyncio.create_task(server.start())
    await until((directory / "data" / "postmaster.pid").exists, every=0.001)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert live_postmaster(directory / "data") is None
    async with server:
        assert urllib.parse.urlsplit(server.dsn).hostname == "127.0.0.1"
