"""Run a service from its command line to its exit status. Each service's `__main__` calls it.

    def main() -> None:
        sys.exit(run_service(SchedulerSettings, compose))

    async def compose(shell: Shell[SchedulerSettings]) -> None:      # the composition root
        bus = add_bus(shell)                    # a component that connects to the log, however long that takes
        shell.http.routes.append(Route("/configz", ...))
        shell.service.add(Component(name="cycle", run=cycle.run, stop=cycle.stop))

The HTTP server is the first component: it answers `/healthz` while the others start, and until they have stopped.
"""

import asyncio
import gc
import os
import resource
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Generic, TypeVar

from koordcore.ports.clock import Clock
from koordcore.service.clock import SystemClock
from koordcore.service.flags import HelpRequested, render_help
from koordcore.service.health import Health
from koordcore.service.lifecycle import EXIT_FAILED, EXIT_STUCK, Component, Service
from koordcore.service.settings import InvalidSettings, ServiceSettings
from koordcore.service.telemetry.logging import Logger, configure_logging, logger
from koordcore.service.telemetry.metrics import Metrics
from koordcore.service.telemetry.tracing import Tracer, make_tracer
from koordcore.service.web.debugging import DEBUG_VERBOSITY
from koordcore.service.web.http import HttpServer
from koordcore.values.invalid import InvalidInput

S = TypeVar("S", bound=ServiceSettings)

EXIT_USAGE: Final = 2
# Thresholds of the garbage collector's three generations. A service that folds a cluster has some 50 objects for each
# fact under way, and thousands of facts. If they are looked at before they are gone, that takes a tenth of its time.
_COLLECT_AFTER: Final = (10_000, 5, 200)
_COLLECT_AFTER_FOLDING: Final = (100_000, 2, 50)
_OLDEST: Final = 2
_LAG_LOOK_SECONDS: Final = 1.0
MOST_FILES: Final = 65_536


@dataclass(frozen=True, kw_only=True)
class Shell(Generic[S]):
    """The parts that every service has. The `compose` function of a service builds its components from them."""

    settings: S
    clock: Clock
    service: Service  # Receives the components
    health: Health  # Liveness and readiness checks
    metrics: Metrics  # Prometheus registry
    tracer: Tracer  # Creates spans
    http: HttpServer  # HTTP server for probes, metrics and the service's routes
    log: Logger  # Logger of the service


Compose = Callable[[Shell[S]], Awaitable[None]]


def run_service(settings_type: type[S], compose: Compose[S], words: Sequence[str] | None = None) -> int:
    """Run one service until it ends, and return its exit status: 0, 1 (failed) or 2 (invalid settings). If a thread
    still works after another grace period, for example because it hangs, the process ends with status 70. `words`:
    Command line without the program's name; None: that of the process.
    """
    name = settings_type.service
    try:
        settings = settings_type.load(sys.argv[1:] if words is None else words, os.environ)
    except HelpRequested:
        sys.stdout.write(render_help(f"koord-{name}", settings_type.about, settings_type.flag_specs()))
        return 0
    except InvalidSettings as error:
        for problem in error.problems:
            sys.stderr.write(f"koord-{name}: {problem}\n")
        return EXIT_USAGE
    collect_rarely(folds_cluster=settings_type.folds_cluster)
    allow_files()
    with asyncio.Runner(loop_factory=_loop_factory(settings)) as runner:
        status = runner.run(serve(settings, compose))
        # The runner waits for the threads of the event loop, of which one may hang: the process ends all the same.
        watchdog = threading.Timer(settings.shutdown_grace, os._exit, (EXIT_STUCK,))
        watchdog.daemon = True
        watchdog.start()
    watchdog.cancel()
    return status


def allow_files() -> None:
    """Raise the soft limit of open files to the hard one, at most to 65,536. Many systems start a process with 1,024,
    which is fewer than the connections of an HTTP server and of the log together.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def collect_rarely(*, folds_cluster: bool = False) -> None:
    """Let the garbage collector run rarely, because folds keep many objects that are in no cycle. With the default
    thresholds, the collector takes a fifth of the CPU time under load (measured with 20,000 pods). Objects that survive
    a full collection are excluded from later ones.
    """
    gc.freeze()
    gc.set_threshold(*(_COLLECT_AFTER_FOLDING if folds_cluster else _COLLECT_AFTER))
    if _keep_survivors not in gc.callbacks:
        gc.callbacks.append(_keep_survivors)


def _keep_survivors(phase: str, details: dict[str, int]) -> None:
    if phase == "stop" and details["generation"] == _OLDEST:
        gc.freeze()


async def serve(settings: S, compose: Compose[S], *, handle_signals: bool = True) -> int:
    """Run a service until it is stopped or a component fails, and return its exit status. It builds a `Shell`, lets
    `compose` add the components, and runs them. Errors of `compose` are logged, not raised. Tests, and programs that
    run several services in one event loop, use `handle_signals=False`. `handle_signals`: whether SIGTERM and SIGINT
    stop the service.

    Returns:
        0; 1 if `compose` raised, a component failed or the trace file cannot be opened.
    """
    name = settings.service
    clock = settings.run_clock()
    configure_logging(
        service=name,
        instance=settings.instance,
        cluster=settings.cluster,
        level="debug" if settings.log_verbosity >= DEBUG_VERBOSITY else settings.log_level,
        form=settings.log_format,
        clock=clock,
    )
    log = logger(name)
    asyncio.get_running_loop().set_exception_handler(_log_unhandled(log))
    health = Health()
    metrics = Metrics(name, version=_version(name), instance=settings.instance)
    service = Service(name, health=health, grace_real_seconds=settings.shutdown_grace)
    http = HttpServer(settings, service=service, health=health, metrics=metrics, clock=clock)
    try:
        tracer = make_tracer(
            name,
            instance=settings.instance,
            cluster=settings.cluster,
            otlp_endpoint=settings.otlp_endpoint,
            trace_file=str(settings.trace_file) if settings.trace_file else None,
            sample_ratio=settings.trace_sample_ratio,
        )
    except OSError as error:
        log.error("trace_file_failed", error=str(error))
        return EXIT_FAILED

    async def close_tracer() -> None:
        await asyncio.to_thread(tracer.close)

    log.info("service_starting", version=_version(name), settings=settings.shown())
    for spec in settings.given_idle_flags:
        log.warning("configuration_without_effect", path=f"--{spec.names[0]}", why=spec.no_effect)
    for gate in settings.given_idle_gates:
        log.warning("configuration_without_effect", path=f"--feature-gates={gate.name}", why=gate.no_effect)
    service.add(Component(name="traces", close=close_tracer))
    service.add(Component(name="http", start=http.start, run=http.run, stop=http.stop))
    service.add(Component(name="loop-lag", run=lambda: _watch_loop(metrics, health)))
    shell = Shell(
        settings=settings,
        clock=clock,
        service=service,
        health=health,
        metrics=metrics,
        tracer=tracer,
        http=http,
        log=log,
    )
    try:
        await compose(shell)
    except Exception as error:
        sentence = str(error) if isinstance(error, InvalidInput) else f"{type(error).__name__}: {error}"
        log.error("compose_failed", error=sentence, exc_info=error)
        tracer.close()
        return EXIT_FAILED
    return await service.run(handle_signals=handle_signals)


async def _watch_loop(metrics: Metrics, health: Health) -> None:
    """Measure how late timers fire, because a task blocks the event loop, and count seconds of watched work."""
    host = SystemClock()
    while True:
        due = host.monotonic() + _LAG_LOOK_SECONDS
        await host.sleep(_LAG_LOOK_SECONDS)
        health.second_passed()
        metrics.loop_lag_seconds.observe(max(0.0, host.monotonic() - due))


def _loop_factory(settings: ServiceSettings) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if settings.event_loop == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if settings.event_loop == "uvloop":
            raise
        return None
    return uvloop.new_event_loop


def _log_unhandled(log: Logger) -> Callable[[asyncio.AbstractEventLoop, dict[str, object]], None]:
    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        log.error("unhandled_in_loop", message=context.get("message"), exc_info=context.get("exception"))

    return handle


def _version(name: str) -> str:
    try:
        return version(f"koord-{name}")
    except PackageNotFoundError:
        return version("koordcore")
