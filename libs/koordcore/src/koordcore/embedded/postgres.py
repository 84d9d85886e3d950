"""Run Postgres, whose programs a Python wheel contains, as a child process on a data directory.

`PostgresServer` creates the data directory once, runs the server on a loopback port (or a unix socket) with password
authentication, and recovers it after kill -9. `postgres_location` decides where the data is stored and which user runs
the server. `supervisor` restarts the server if it is part of a stack.
"""

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import urllib.parse
from dataclasses import dataclass, replace
from pathlib import Path

from koordcore.embedded.errors import AlreadyRunningError, EmbeddedError
from koordcore.embedded.ports import LOOPBACK, free_ports, require_free_port
from koordcore.embedded.postgres_location import (
    Location,
    live_postmaster,
    locate,
    pointer_file,
    remove_recycled_pid_file,
)
from koordcore.embedded.process import ProcessSpec
from koordcore.embedded.server import EmbeddedServer, postgres_installation
from koordcore.values.override import override

# Text that Postgres logs if backends of a killed server still hold its shared memory.
BACKENDS_STILL_THERE = "is still in use"
MAX_SOCKET_PATH = 100

HOST_BASED_AUTHENTICATION = """\
local all all              scram-sha-256
host  all all 127.0.0.1/32 scram-sha-256
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresConfig:
    data_dir: Path  # Requested data directory. `postgres_location` describes when the data is stored elsewhere.
    name: str = "postgres"  # Name of the process in status and log
    # File with the random password of `user`, mode 0600. None: beside the data directory.
    password_file: Path | None = None
    port: int | None = None  # Port. None: the first start chooses a free port, and later starts use it again.
    socket_directory: Path | None = None  # If set, the server listens on a unix socket in this folder and not on TCP
    user: str = "koord"  # Database role of our services. It is not a superuser but may create databases.
    database: str = "koord"  # Database of our services, owned by `user`
    synchronous_commit: bool = True  # If False, a crash may lose the last commits, but the data stays consistent
    shared_buffers_mb: int = 32
    max_connections: int = 80
    log_file: Path | None = None  # File for the server's stderr. None: beside the data directory.
    ready_seconds: float = 60.0  # Time until the server must accept connections


class PostgresServer(EmbeddedServer[PostgresConfig]):
    """One Postgres server as a child process. `stop` ends all sessions; `start` waits until crash recovery is done."""

    def __init__(self, config: PostgresConfig) -> None:
        super().__init__(config)
        self._location: Location | None = None

    @property
    def port(self) -> int:
        """Port of the server. It is also part of the name of a unix socket."""
        assert self.config.port is not None, "the server was never started and no port is configured"
        return self.config.port

    @property
    def location(self) -> Location:
        """Paths of data and programs, and the user that runs the server. Decided at the first access."""
        if self._location is None:
            self._location = locate(self.config.data_dir, postgres_installation())
        return self._location

    @property
    def password_file(self) -> Path:
        """File with the password, beside the requested data directory."""
        wanted = self.config.data_dir
        return self.config.password_file or wanted.with_name(wanted.name + ".password")

    @property
    def log_file(self) -> Path:
        """File that receives the server's stderr."""
        wanted = self.config.data_dir
        return self.config.log_file or wanted.with_name(wanted.name + ".log")

    @property
    def dsn(self) -> str:
        """Address of the services' database with user and password: `postgresql://user:password@...`. It is final once
        `spec` or `start` has chosen the port.
        """
        return self.dsn_for(self.config.database)

    def dsn_for(self, database: str) -> str:
        """Return the address of another database of this server, with user and password."""
        password = urllib.parse.quote(self._read_or_create_password(), safe="")
        return self._url(f"{self.config.user}:{password}", database)

    @property
    def url(self) -> str:
        """Address without the password, for status output."""
        return self._url(self.config.user, self.config.database)

    @override
    def spec(self) -> ProcessSpec:
        if self.config.port is None:
            self.config = replace(self.config, port=free_ports(1)[0])
        location = self.location
        argv = [str(location.installation / "bin" / "postgres"), "-D", str(location.data)]
        for key, value in self._settings().items():
            argv += ["-c", f"{key}={value}"]
        return ProcessSpec(
            name=self.config.name,
            argv=tuple(argv),
            env={"LC_ALL": "C", "TZ": "UTC"},
            cwd=Path("/"),  # ours may be closed to the server's user
            ready=self._is_ready,
            ready_seconds=self.config.ready_seconds,
            retry_on=(BACKENDS_STILL_THERE,),
            prepare=self._prepare,
            log_file=self.log_file,
            user=None if location.owner is None else location.owner.uid,
            group=None if location.owner is None else location.owner.gid,
            stop_signal=signal.SIGINT,  # "fast": ends sessions, writes a checkpoint
            stop_seconds=20.0,
            ports={} if self.config.socket_directory is not None else {"postgres": self.port},
            urls={"postgres": self.url},
        )

    def wipe(self) -> None:
        """Delete the data, the password file and the pointer file (see `locate`). The server must be stopped."""
        assert not self.is_running, "a running server's data is not deleted"
        shutil.rmtree(self.location.data, ignore_errors=True)
        for file in (self.password_file, pointer_file(self.config.data_dir)):
            file.unlink(missing_ok=True)
        self._location = None

    def set_aside(self, suffix: str) -> Path | None:
        """Move the data to a folder beside it, whose name ends with `suffix`. The next start makes an empty database
        with the same password. Return the folder; None if there is no data. The server must be stopped.
        """
        data = self.location.data
        if not data.exists():
            return None
        assert live_postmaster(data) is None, "a running server's data is not moved"
        return data.rename(data.with_name(data.name + suffix))

    def _is_configured(self, port: int, config: PostgresConfig) -> bool:
        return config.port is not None

    def _url(self, credentials: str, database: str) -> str:
        if self.config.socket_directory is not None:
            where = urllib.parse.quote(str(self.config.socket_directory.absolute()), safe="")
            return f"postgresql://{credentials}@/{database}?host={where}&port={self.port}"
        return f"postgresql://{credentials}@{LOOPBACK}:{self.port}/{database}"

    def _settings(self) -> dict[str, str]:
        """Return the server settings for the command line. They are not in a file, so a changed configuration does not
        need a migration of files.
        """
        config = self.config
        socket_directory = config.socket_directory
        return {
            "listen_addresses": LOOPBACK if socket_directory is None else "",
            "unix_socket_directories": "" if socket_directory is None else str(socket_directory.absolute()),
            "port": str(config.port),
            "max_connections": str(config.max_connections),
            "shared_buffers": f"{config.shared_buffers_mb}MB",
            "effective_cache_size": "512MB",
            "work_mem": "8MB",
            "fsync": "on",
            "full_page_writes": "on",
            "synchronous_commit": "on" if config.synchronous_commit else "off",
            # One server, no replicas: WAL holds only what crash recovery needs.
            "wal_level": "minimal",
            "max_wal_senders": "0",
            "min_wal_size": "64MB",
            "max_wal_size": "512MB",
            "huge_pages": "off",
            "jit": "off",
            "max_parallel_workers_per_gather": "0",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "%m [%p] %u@%d ",
        }

    async def _prepare(self) -> None:
        """Check before every start that the data exists, no other process uses it, and the port is free."""
        running = live_postmaster(self.location.data)
        if running is not None:
            raise AlreadyRunningError(what=f"{self.config.name} on {self.location.data}", pid=running)
        remove_recycled_pid_file(self.location.data)
        if self.config.socket_directory is None:
            require_free_port(self.port, owner=self.config.name)
        else:
            self._prepare_socket_directory(self.config.socket_directory.absolute())
        if not (self.location.data / "PG_VERSION").exists():
            await asyncio.to_thread(self._initialise)
        self._read_or_create_password()

    async def _is_ready(self) -> bool:
        return live_postmaster(self.location.data, status="ready") is not None

    def _prepare_socket_directory(self, directory: Path) -> None:
        socket_path = directory / f".s.PGSQL.{self.port}"
        if len(os.fsencode(socket_path)) > MAX_SOCKET_PATH:
            raise EmbeddedError(f"{self.config.name}: socket path {socket_path} is longer than {MAX_SOCKET_PATH} bytes")
        directory.mkdir(parents=True, exist_ok=True)
        self._give_to_owner(directory)

    def _initialise(self) -> None:
        """Run initdb and create role and database. This happens in a temporary folder that is renamed at the end. So an
        interrupted initialisation never leaves a folder that looks like a data directory.
        """
        location = self.location
        fresh = location.data.with_name(location.data.name + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        fresh.chmod(0o700)
        self._give_to_owner(fresh)
        # The superuser gets no password and thus no login: only `postgres --single` acts as it.
        initdb = ["initdb", "-D", str(fresh), "-U", "postgres", "-A", "reject", "-E", "UTF8", "--locale=C"]
        self._run_as_owner([*initdb, "--no-instructions"], purpose="initdb")
        (fresh / "pg_hba.conf").write_text(HOST_BASED_AUTHENTICATION)
        password = self._read_or_create_password()
        user, database = _identifier(self.config.user), _identifier(self.config.database)
        statements = (
            f"CREATE ROLE {user} LOGIN CREATEDB PASSWORD '{password}'",
            f"CREATE DATABASE {database} OWNER {user}",
        )
        errors = self._run_as_owner(
            ["postgres", "--single", "-D", str(fresh), "postgres"],
            purpose="creating the role and database",
            stdin="".join(f"{statement};\n" for statement in statements),
        )
        if "ERROR:" in errors:
            raise EmbeddedError(f"{self.config.name}: creating the role and database failed: {errors.strip()}")
        if location.data.exists():
            location.data.rmdir()  # fails, rightly, when something that is not ours is in it
        fresh.rename(location.data)

    def _read_or_create_password(self) -> str:
        """Return the password; create a random one if there is no data directory yet. A random one is written, for us
        alone to read, while there is no data that knows another.
        """
        file = self.password_file
        if file.exists():
            return file.read_text().strip()
        if (self.location.data / "PG_VERSION").exists():
            raise EmbeddedError(
                f"{file} is missing but {self.location.data} holds data that it opens; "
                "restore the file, or delete the data directory to start empty"
            )
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(secrets.token_urlsafe(24) + "\n")
        return file.read_text().strip()

    def _run_as_owner(self, argv: list[str], *, purpose: str, stdin: str = "") -> str:
        """Run a program of the installation as the owner until it ends, and return its stderr."""
        location = self.location
        owner = location.owner
        done = subprocess.run(
            [location.installation / "bin" / argv[0], *argv[1:]],
            input=stdin,
            capture_output=True,
            text=True,
            env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
            cwd="/",
            check=False,
            user=None if owner is None else owner.uid,
            group=None if owner is None else owner.gid,
            extra_groups=None if owner is None else [owner.gid],
        )
        if done.returncode != 0:
            raise EmbeddedError(f"{self.config.name}: {purpose} failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stderr

    def _give_to_owner(self, path: Path) -> None:
        if self.location.owner is not None:
            os.chown(path, self.location.owner.uid, self.location.owner.gid)


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
