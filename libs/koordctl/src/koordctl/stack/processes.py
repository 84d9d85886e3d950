"""The processes of the embedded stack: what to run, with which user and which log file.

The log starts first, then its streams are declared, then the manager, the scheduler, the projector with Postgres, and
the agents start.

`specs` computes the processes from `StackOptions`. The supervisor of `koordcore.embedded` runs them. Next module to
read: `up`.
"""

import asyncio
import contextlib
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from koordcore.bus.client.connection import ConnectRefused, NoAnswer, NotConnected
from koordcore.bus.factory import BusSettings, bootstrap_bus
from koordcore.bus.names import BusNames
from koordcore.bus.read.stream_reader import ApiError
from koordcore.bus.setup.bootstrap import Change, FactsGone, ServerTooOld, StreamDiffers
from koordcore.bus.setup.manifest import BOOTSTRAP
from koordcore.bus.setup.principals import nats_users, seed_file, shares
from koordcore.embedded.errors import EmbeddedError, NotRestartableError
from koordcore.embedded.nats import NatsServer
from koordcore.embedded.nats_config import NatsServerConfig
from koordcore.embedded.ports import LOOPBACK, free_ports, is_port_free
from koordcore.embedded.postgres import PostgresConfig, PostgresServer
from koordcore.embedded.postgres_location import live_postmaster
from koordcore.embedded.process import ProcessSpec, http_ok
from koordcore.service.clock import ScaledClock, SystemClock, parse_clock
from koordcore.values.invalid import InvalidInput

from koordctl.access.log import DEFAULT_CLUSTER, key_folder
from koordctl.render.output import errors
from koordctl.stack.containers import CONTAINERD, SOCKET, containerd_spec
from koordctl.stack.kubernetes import stack_part
from koordctl.stack.kubernetes.control_plane import PORTS, prepare
from koordctl.stack.kubernetes.programs import folder_of

SERVICES: Final = ("manager", "scheduler", "projector")
DESCHEDULER: Final = "descheduler"
"""Service that runs only with a configuration."""
_OWN_FLAGS: Final = {"manager": ("--feature-gates", "EnableSyncGPUSharedResource=true")}
"""Flags of a service. Admission adds gpu.shared to the requests of pods with GPUs, so nodes have to offer it."""
PORTS_FILE: Final = "ports.json"
SIMULATOR: Final = "agent-sim-"
CRI_PROXY: Final = "criproxy"
PROXY_SOCKET: Final = "proxy.sock"
_REGISTRATIONS: Final = "hookserver.d"
READY_SECONDS: Final = 120.0
NATS_READY_SECONDS: Final = 120.0
"""A killed server recovers its streams before it answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    var: Path  # Folder of data, logs and state
    # First of consecutive ports; None takes free ports, if possible those of the last start.
    port_base: int | None = None
    clock: str = "system"  # Text that describes the clock of all services
    sync: str = "1s"  # When nats-server writes its files to disk: "always", or an interval
    host_node: str | None = None  # Node name of this machine; None runs no agent for this machine
    simulated: Path | None = None  # File with the simulated nodes; None simulates no nodes
    simulators: int = 1  # Number of processes that share the simulated nodes
    descheduler: Path | None = None  # Configuration of the descheduler; None runs none
    # Control plane of Kubernetes from which all objects come; None: they come from `koord apply`.
    kubernetes: stack_part.KubernetesPart | None = None
    # Folder of a containerd with a CRI proxy in front, for containers on this machine; None runs none.
    containers: Path | None = None
    new_log: bool = False  # Whether to begin a new log if the stream of facts is gone
    traces: bool = False  # Whether the services write their spans to var/log/traces.jsonl
    # Additional flags for each service (manager, scheduler, projector, agent).
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    log_level: str = "info"  # Log level of the services
    cluster: str = DEFAULT_CLUSTER  # Name of the cluster

    @property
    def log_folder(self) -> Path:
        return self.var / "log"

    @property
    def trace_file(self) -> Path:
        """File to which the services write their spans, if `traces` is set. The path itself does not depend on it."""
        return self.log_folder / "traces.jsonl"


def choose_ports(options: StackOptions, names: Sequence[str]) -> dict[str, int]:
    """Return a local port for each name, and store them for the next start.

    With `port_base`, these are consecutive ports from there on, and nothing checks that they are free. Without it, the
    ports of the last start are used if they are free, else other free ones.

    Raises:
        EmbeddedError: There are no free ports.
    """
    file = options.var / PORTS_FILE
    before: dict[str, int] = {}
    with contextlib.suppress(OSError, msgspec.DecodeError):
        before = msgspec.json.decode(file.read_bytes(), type=dict[str, int])
    if options.port_base is not None:
        chosen = {name: options.port_base + index for index, name in enumerate(names)}
    else:
        kept = {name: port for name, port in before.items() if name in names and is_port_free(port)}
        missing = [name for name in names if name not in kept]
        chosen = {**kept, **dict(zip(missing, free_ports(len(missing)), strict=True))}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode({**before, **chosen})))
    return chosen


def shared_clock(speed: float, var: Path) -> str:
    """Return the clock setting `<speed>@<real origin>@<origin>` that all services of a run share.

    The clock never shows a time before the end of the last run on this data.

    Args:
        speed: Simulated seconds per real second. 1: the host's time, unless an earlier run was ahead of it.
    """
    file = var / "clock"
    now = SystemClock().unix()
    shown = now
    with contextlib.suppress(OSError, InvalidInput):
        shown = max(now, parse_clock(file.read_text().strip()).unix())
    ahead = shown - now > 1
    clock = str(ScaledClock.starting_now(speed, at_unix=shown)) if speed != 1 or ahead else "system"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(clock + "\n")
    return clock


def specs(options: StackOptions) -> list[ProcessSpec]:
    """Return every process of the stack, for the supervisor.

    Raises:
        EmbeddedError: The program of a server is missing, or there is no free port.
    """
    agents = _agent_names(options)
    optional = (DESCHEDULER,) if options.descheduler is not None else ()
    proxy = (CRI_PROXY,) if options.containers is not None else ()
    plane_ports = (*PORTS, stack_part.WEBHOOK_PORT) if options.kubernetes is not None else ()
    names = ("nats", "nats-monitor", "postgres", *SERVICES, *optional, *agents, *proxy, *plane_ports)
    ports = choose_ports(options, names)
    nats = _nats(options, ports)
    postgres = _postgres(options, ports)
    nats_url = f"nats://{LOOPBACK}:{ports['nats']}"
    begun = partial(_set_rows_aside, postgres)
    found = [_with_streams(nats.spec(), options, nats_url, begun), postgres.spec()]
    if options.new_log:
        found[1] = replace(found[1], after=("nats",))
    for name in SERVICES:
        # The address holds the password: not on a command line, which every user of the machine can read.
        env = {"KOORD_PROJECTOR_DSN": postgres.dsn} if name == "projector" else {}
        found.append(_service(options, name, name, ports[name], nats_url, _OWN_FLAGS.get(name, ()), env))
    if options.descheduler is not None:
        flags = ("--config", str(options.descheduler.absolute()))
        found.append(_service(options, DESCHEDULER, DESCHEDULER, ports[DESCHEDULER], nats_url, flags, {}))
    found += [
        _service(options, name, "agent", ports[name], nats_url, _agent_flags(options, name), {}) for name in agents
    ]
    if options.containers is not None:
        found += _container_runtime(options, options.containers, ports[CRI_PROXY], nats_url)
    if options.kubernetes is not None:
        found = _behind_api_server(options, options.kubernetes, ports, found)
    return found


def _behind_api_server(
    options: StackOptions, part: stack_part.KubernetesPart, ports: Mapping[str, int], found: Sequence[ProcessSpec]
) -> list[ProcessSpec]:
    """The processes with a control plane, whose objects the manager mirrors."""
    plane = prepare(folder_of(options.var), options.log_folder, part.programs, ports)
    manager = next(spec for spec in found if spec.name == "manager")
    behind = stack_part.with_objects(
        replace(
            manager,
            argv=(*manager.argv, *stack_part.manager_flags(plane)),
            env={**manager.env, **stack_part.manager_environment(plane, ports[stack_part.WEBHOOK_PORT])},
        ),
        plane,
    )
    idle = [options.host_node] if options.host_node is not None else []
    others = [spec for spec in found if spec is not manager]
    return [*stack_part.kubernetes_specs(plane, part, idle), behind, *others]


def _container_runtime(options: StackOptions, folder: Path, port: int, nats_url: str) -> list[ProcessSpec]:
    """Containerd, and the CRI proxy that waits for it."""
    flags = (
        *("--koord-runtimeproxy-endpoint", str(folder / PROXY_SOCKET)),
        *("--remote-runtime-service-endpoint", str(folder / SOCKET)),
        *("--hookserver-dir", str(folder / _REGISTRATIONS)),
        *("--state-dir", str(folder)),
        *("--node", options.host_node or ""),
    )
    return [
        containerd_spec(folder, options.log_folder / f"{CONTAINERD}.log"),
        _service(options, CRI_PROXY, CRI_PROXY, port, nats_url, flags, {}),
    ]


def _agent_names(options: StackOptions) -> list[str]:
    """One agent for this machine, and several that share the simulated nodes."""
    simulators = [f"{SIMULATOR}{number}" for number in range(1, options.simulators + 1)] if options.simulated else []
    return (["agent-host"] if options.host_node else []) + simulators


def _agent_flags(options: StackOptions, name: str) -> tuple[str, ...]:
    if name == "agent-host":
        assert options.host_node is not None, "there is an agent for this host"
        flags = ("--node", options.host_node, "--state-dir", str(options.var / "agents" / name))
        if options.containers is None:
            return flags
        hooks = str(options.containers / "koordlet.sock")
        registrations = str(options.containers / _REGISTRATIONS)
        return (
            *flags,
            *("--runtime-hooks-addr", hooks, "--runtime-hooks-host-endpoint", hooks),
            *("--runtime-hooks-config-path", registrations, "--containerd-endpoint", str(options.containers / SOCKET)),
        )
    state = ("--state-dir", str(options.var / "agents" / name))
    shard = f"{name.removeprefix(SIMULATOR)}/{options.simulators}"
    return ("--simulated-nodes-file", str(options.simulated), "--shard", shard, *state)


def manager_url(processes: Sequence[ProcessSpec]) -> str:
    return next(spec.urls["http"] for spec in processes if spec.name == "manager")


def wipe(options: StackOptions) -> None:
    """Delete everything below `var`, and the data of Postgres wherever it is kept. The stack must not run.

    Raises:
        EmbeddedError: The folder holds other files than a stack's data.
    """
    if options.var.exists() and any(options.var.iterdir()) and not (options.var / PORTS_FILE).exists():
        raise EmbeddedError(f"{options.var} holds other files than a stack's data; name an empty folder")
    PostgresServer(PostgresConfig(data_dir=options.var / "postgres")).wipe()
    shutil.rmtree(options.var, ignore_errors=True)


_DATA: Final = (
    *("nats", "agents", "kubernetes", "log", "run", "clock", "registered.json", "simulated-nodes.json"),
    *("postgres", "postgres.password", "postgres.location"),
)


def data_of(var: Path) -> list[Path]:
    """The files and folders with what a stack has written below `var`, except its keys and the numbers of its ports.

    Raises:
        EmbeddedError: There are such names, but no stack was started in `var`; or one of them is a link.
    """
    found = [var / name for name in _DATA if (var / name).exists() or (var / name).is_symlink()]
    if found and not (var / PORTS_FILE).exists():
        raise EmbeddedError(f"{found[0]} is not from a stack, because {var} has no {PORTS_FILE}; name another folder")
    if links := [each for each in found if each.is_symlink()]:
        raise EmbeddedError(f"{links[0]} is a link; delete what it points to, and the link, yourself")
    return found


def delete_data(var: Path) -> bool:
    """Delete the log, the rows and the rest of `data_of`. Other files stay. Returns whether there was anything.

    Raises:
        EmbeddedError: As `data_of`; or a server of Postgres still runs on the rows.
    """
    found = data_of(var)
    if not found:
        return False
    postgres = PostgresServer(PostgresConfig(data_dir=var / "postgres"))
    running = live_postmaster(postgres.location.data)
    if running is not None:
        raise EmbeddedError(f"a Postgres (pid {running}) runs on {postgres.location.data}; stop it first")
    postgres.wipe()
    for each in found:
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink(missing_ok=True)
    return True


def log_server(options: StackOptions) -> NatsServer:
    """The log's server of a stack that does not run, for work on its streams without the services.

    Raises:
        EmbeddedError: There is no free port.
    """
    return _nats(options, choose_ports(options, ("nats", "nats-monitor")))


def _nats(options: StackOptions, ports: dict[str, int]) -> NatsServer:
    names = BusNames(options.cluster)
    return NatsServer(
        NatsServerConfig(
            name="nats",
            directory=options.var / "nats",
            port=ports["nats"],
            monitor_port=ports["nats-monitor"],
            sync_interval=options.sync,
            users=nats_users(names, key_folder(options.var)),
            shares=shares(names),
            log_file=options.log_folder / "nats.log",
            ready_seconds=NATS_READY_SECONDS,
        )
    )


def _postgres(options: StackOptions, ports: dict[str, int]) -> PostgresServer:
    # Rows and their position are in one transaction: a commit that a power cut takes back is folded again.
    return PostgresServer(
        PostgresConfig(
            data_dir=options.var / "postgres",
            port=ports["postgres"],
            synchronous_commit=False,
            log_file=options.log_folder / "postgres.log",
        )
    )


def _set_rows_aside(postgres: PostgresServer) -> None:
    """Keep the rows of a log that is gone, and let the projector begin with the new one. Postgres must not run."""
    moment = datetime.now(UTC)
    kept = postgres.set_aside(f"-of-the-log-before-{moment:%Y%m%dT%H%M%SZ}")
    if kept is not None:
        errors.print(f"a new log begins; the rows of the old one are kept in {kept}")


def _with_streams(spec: ProcessSpec, options: StackOptions, url: str, begun: Callable[[], None]) -> ProcessSpec:
    """The process of the log's server, which counts as ready once every stream is declared.

    Services bind to streams and create none (event-bus spec, 2). `begun`: called when a new log has begun by order.
    """
    health = spec.ready
    assert isinstance(health, str), "nats-server is asked over HTTP"
    settings = BusSettings(
        urls=(url,),
        cluster=options.cluster,
        user=BOOTSTRAP.name,
        nkey_seed_file=seed_file(key_folder(options.var), BOOTSTRAP.name),
        connect_seconds=NATS_READY_SECONDS,
    )

    new_log = options.new_log

    async def ready() -> bool:
        nonlocal new_log
        if not await asyncio.to_thread(http_ok, health):
            return False
        try:
            changes = await bootstrap_bus(settings, new_log=new_log)
        except NoAnswer:
            return False
        except FactsGone as error:
            raise NotRestartableError(f"nats: {error}") from error
        except (ConnectRefused, NotConnected, ServerTooOld, StreamDiffers, ApiError) as error:
            raise EmbeddedError(f"nats: the streams could not be set up: {error}") from error
        if new_log and changes[BusNames(options.cluster).ev] is Change.CREATED:
            begun()
        new_log = False  # a log that is lost later is not replaced
        return True

    return replace(spec, ready=ready)


def _service(
    options: StackOptions, name: str, module: str, port: int, nats_url: str, own: tuple[str, ...], env: dict[str, str]
) -> ProcessSpec:
    """The process of a service, started as `python -m koord_<module>` with flags."""
    flags: list[str] = [
        *("--cluster", options.cluster),
        *("--instance", name),
        *("--clock", options.clock),
        *("--nats-urls", nats_url),
        *("--nats-seed-file", str(seed_file(key_folder(options.var), module).absolute())),
        *("--http-port", str(port)),
        *("--log-format", "json"),
        *("--log-level", options.log_level),
        *(("--trace-file", str(options.trace_file.absolute())) if options.traces else ()),
        *own,
        *options.flags.get(module, ()),
    ]
    url = f"http://{LOOPBACK}:{port}"
    return ProcessSpec(
        name=name,
        argv=(sys.executable, "-m", f"koord_{module}", *flags),
        ready=f"{url}/readyz",
        ready_seconds=READY_SECONDS,
        # Not after postgres: the projector waits for it itself, and its interpreter starts meanwhile.
        after=("nats",),
        log_file=options.log_folder / f"{name}.log",
        ports={"http": port},
        urls={"http": url},
        # Two cores start four interpreters at once; numpy's threads would only make them wait for each other.
        env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **env},
    )
