"""The HTTP server: probes, metrics, the guard in front of handlers, TLS with rotation, and a graceful end."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
from cryptography import x509
from koordcore.service.health import Health
from koordcore.service.lifecycle import Component, Service
from koordcore.service.settings import ServiceSettings
from koordcore.service.telemetry.metrics import Metrics
from koordcore.service.web import http as web_http
from koordcore.service.web.http import CERTIFICATE_LOOK_SECONDS, HttpServer
from koordcore.values.invalid import InvalidInput
from prometheus_client import generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs
from support.certificates import write_certificate
from support.manual_clock import ManualClock
from support.until import DEADLINE_SECONDS, until


class DemoSettings(ServiceSettings):
    """A service without fields of its own."""

    service: ClassVar[str] = "demo"


@dataclass
class Running:
    """A service that only serves HTTP."""

    http: HttpServer
    service: Service
    health: Health
    metrics: Metrics
    clock: ManualClock
    life: "asyncio.Task[int]"
    client: httpx.AsyncClient


@asynccontextmanager
async def serving(
    *routes: Route, configure: Callable[[HttpServer], None] = lambda _: None, **settings: object
) -> AsyncGenerator[Running]:
    health, metrics, clock = Health(), Metrics("demo"), ManualClock()
    service = Service("demo", health=health, grace_real_seconds=2 * DEADLINE_SECONDS)
    made = DemoSettings.model_validate({"shutdown_grace": 2 * DEADLINE_SECONDS, **settings})
    http = HttpServer(made, service=service, health=health, metrics=metrics, clock=clock)
    http.routes.extend(routes)
    configure(http)
    service.add(Component(name="http", start=http.start, run=http.run, stop=http.stop))
    life = asyncio.create_task(service.run(handle_signals=False))
    await until(lambda: health.is_ready() or life.done(), every=0.001)
    assert not service.failures, service.failures
    async with httpx.AsyncClient(base_url=http.url, timeout=DEADLINE_SECONDS, verify=False, trust_env=False) as client:
        yield Running(http, service, health, metrics, clock, life, client)
    service.stop("end of test")
    assert await life == 0


def page_of(run: Running) -> str:
    """Return the text of /metrics from the registry. A request for it could exceed the time limit of the server."""
    return generate_latest(run.metrics.registry).decode()


async def test_probes_tell_what_is_wrong() -> None:
    async with serving() as run:
        assert (await run.client.get("/healthz")).text == (await run.client.get("/livez")).text == "ok\n"
        bus = run.health.readiness_condition("bus", "not connected yet")
        answer = await run.client.get("/readyz")
        assert (answer.status_code, answer.text) == (503, "bus: not connected yet\n")
        answer = await run.client.get("/readyz?verbose")
        assert answer.json() == {
            "status": "failed",
            "checks": [
                {"name": "running", "ok": True, "reason": ""},
                {"name": "bus", "ok": False, "reason": "not connected yet"},
            ],
        }
        bus.met()
        assert (await run.client.get("/readyz?verbose=true")).json()["status"] == "ok"
        run.health.add_liveness("loop", lambda: "stuck")
        assert (await run.client.get("/healthz")).status_code == 503


async def test_metrics_have_the_exact_names() -> None:
    async with serving() as run:
        bus = run.metrics.bus
        bus.append("appended", 0.003)
        bus.conflict("node")
        bus.follower_lag("cluster", events=3, seconds=0.5)
        bus.follower_halted("cluster", halted=True)
        bus.dlq_depth("bind", 2)
        bus.gap("cluster")
        bus.snapshot_age("cluster", 60)
        page = (await run.client.get("/metrics")).text
    samples = {line.rsplit(" ", 1)[0]: line.rsplit(" ", 1)[1] for line in page.splitlines() if line[0] != "#"}
    for name, value in {
        'koord_bus_append_total{outcome="appended"}': 1,
        "koord_bus_append_seconds_count": 1,
        'koord_bus_conflicts_total{kind="node"}': 1,
        'koord_bus_follower_lag_events{fold="cluster"}': 3,
        'koord_bus_follower_lag_seconds{fold="cluster"}': 0.5,
        'koord_bus_follower_halted{fold="cluster"}': 1,
        'koord_bus_dlq_depth{consumer="bind"}': 2,
        'koord_bus_gap_total{fold="cluster"}': 1,
        'koord_bus_snapshot_age_seconds{fold="cluster"}': 60,
    }.items():
        assert float(samples[name]) == value, name
    assert float(samples["process_resident_memory_bytes"]) > 1e6
    assert float(samples["process_cpu_seconds_total"]) > 0
    assert "_created" not in page


async def test_requests_are_counted_by_handler_never_by_path() -> None:
    async def get_pod(request: Request) -> Response:
        return PlainTextResponse(request.path_params["uid"])

    async with serving(Route("/pods/{uid}", get_pod)) as run:
        for uid in ("a", "b"):
            assert (await run.client.get(f"/pods/{uid}")).text == uid
        assert (await run.client.get("/nothing/here")).status_code == 404
        page = (await run.client.get("/metrics")).text
    assert 'koord_http_requests_total{code="200",handler="get_pod",method="GET"} 2.0' in page
    assert 'koord_http_requests_total{code="404",handler="none",method="GET"} 1.0' in page
    assert "/pods" not in page


async def test_invalid_input_is_answered_with_field_rule_and_value() -> None:
    async def apply(_request: Request) -> Response:
        raise InvalidInput("a Kubernetes quantity", "1.x", "spec.cpu")

    async with serving(Route("/apply", apply, methods=["POST"])) as run:
        answer = await run.client.post("/apply")
    assert answer.status_code == 400
    assert answer.json() == {
        "error": "spec.cpu: must be a Kubernetes quantity, got '1.x'",
        "field": "spec.cpu",
        "rule": "a Kubernetes quantity",
        "value": "1.x",
    }


async def test_a_broken_handler_answers_500_and_the_server_goes_on() -> None:
    async def broken(_request: Request) -> Response:
        raise RuntimeError("bug")

    async with serving(Route("/broken", broken)) as run:
        answer = await run.client.get("/broken")
        assert answer.status_code == 500
        assert "bug" not in answer.text
        assert (await run.client.get("/healthz")).status_code == 200


async def test_a_long_body_is_refused_also_when_it_hides_its_length() -> None:
    async def apply(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 100

    def small(http: HttpServer) -> None:
        http.max_body_bytes = 1000

    async with serving(Route("/apply", apply, methods=["POST"]), configure=small) as run:
        assert (await run.client.post("/apply", content=b"x" * 1000)).text == "1000"
        assert (await run.client.post("/apply", content=b"x" * 1001)).status_code == 413
        assert (await run.client.post("/apply", content=chunks())).status_code == 413


async def test_an_answer_must_begin_in_time_but_a_stream_may_go_on() -> None:
    async def late(_request: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    one_was_too_late = asyncio.Event()

    async def lines() -> AsyncIterator[bytes]:
        yield b"line\n"
        await one_was_too_late.wait()
        yield b"another\n"

    async def stream(_request: Request) -> Response:
        return StreamingResponse(lines())

    def hasty(http: HttpServer) -> None:
        http.answer_seconds = 1.0

    routes = Route("/late", late), Route("/stream", stream)
    async with serving(*routes, configure=hasty) as run, AsyncExitStack() as streams:

        async def stream_in_time() -> httpx.Response | None:
            found = await streams.enter_async_context(run.client.stream("GET", "/stream"))
            return found if found.status_code == 200 else None

        begun = await until(stream_in_time, "a stream begins in time")
        answer = await run.client.get("/late")  # asked later, so the time of the stream has ended, too
        assert (answer.status_code, answer.text) == (503, "no answer within 1 s\n")
        one_was_too_late.set()
        assert await begun.aread() == b"line\nanother\n"


async def test_an_answer_that_began_as_its_time_ended_is_not_begun_again() -> None:
    class Stubborn:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})

    def hasty(http: HttpServer) -> None:
        http.answer_seconds = 1.0

    async with serving(Route("/stubborn", Stubborn()), configure=hasty) as run:
        with pytest.raises(httpx.HTTPError):
            await run.client.get("/stubborn")
        page = page_of(run)
        assert ('code="200",handler="Stubborn"' in page, 'code="503"' in page) == (True, False)


async def test_a_post_is_answered_without_the_framework_and_guarded_like_the_rest() -> None:
    async def echo(body: bytes) -> bytes:
        match body:
            case b"invalid":
                raise InvalidInput("a document", "invalid", "body")
            case b"unready":
                raise HTTPException(503, "not yet")
            case b"bug":
                raise RuntimeError("bug")
            case b"late":
                await asyncio.Event().wait()
            case _:
                pass
        return b"[%b]" % body

    def with_echo(http: HttpServer) -> None:
        http.posts["/echo"] = echo
        http.max_body_bytes = 1000
        http.answer_seconds = DEADLINE_SECONDS

    def hasty(http: HttpServer) -> None:
        http.posts["/echo"] = echo
        http.answer_seconds = 0.1

    def counted(code: int, count: int) -> str:
        return f'koord_http_requests_total{{code="{code}",handler="echo",method="POST"}} {count}.0'

    async def chunks(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b"x" * 100

    async with serving(configure=with_echo) as run:
        post = partial(run.client.post, "/echo")
        answer = await post(content=b"{}")
        assert (answer.status_code, answer.content) == (200, b"[{}]")
        assert answer.headers["content-type"] == "application/json"
        assert (await post(content=chunks(5))).content == b"[%b]" % (b"x" * 500)
        assert (await post(content=chunks(20))).status_code == 413
        assert (await post(content=b"{}", headers={"host": "evil.example"})).status_code == 421
        assert (await post(content=b"invalid")).json()["field"] == "body"
        assert ((await post(content=b"unready")).text, (await post(content=b"bug")).status_code) == ("not yet", 500)
        assert ((await run.client.get("/echo")).status_code, (await run.client.post("/ech")).status_code) == (405, 404)
        page = page_of(run)
    for code, count in ((200, 2), (400, 1), (413, 1), (500, 1), (503, 1)):
        assert counted(code, count) in page
    async with serving(configure=hasty) as run:
        late = await asyncio.gather(*(run.client.post("/echo", content=b"late") for _ in range(3)))
        assert {answer.text for answer in late} == {"no answer within 0.1 s\n"}
        assert counted(503, 3) in page_of(run)


async def test_on_loopback_only_loopback_names_are_served() -> None:
    async with serving() as run:
        for name, status in (("localhost:80", 200), ("[::1]:80", 200), ("127.0.0.1", 200), ("evil.example", 421)):
            assert (await run.client.get("/healthz", headers={"host": name})).status_code == status
    async with serving(http_allowed_hosts=["koord.example"]) as run:
        assert (await run.client.get("/healthz", headers={"host": "koord.example"})).status_code == 200
    async with serving(http_host="0.0.0.0") as run:
        assert (await run.client.get("/healthz", headers={"host": "anything"})).status_code == 200


async def test_requests_in_hand_are_finished_and_no_more_are_taken() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_request: Request) -> Response:
        begun.set()
        await go_on.wait()
        return PlainTextResponse("done")

    async def hold() -> None:
        await go_on.wait()

    async with serving(Route("/slow", slow)) as run:
        # A component after the server that is busy ending: meanwhile probes are answered and work is refused.
        run.service._started.append(Component(name="cycle", stop=hold))  # pyright: ignore[reportPrivateUsage]
        in_hand = asyncio.create_task(run.client.get("/slow"))
        await begun.wait()
        run.service.stop("enough")
        assert (await run.client.get("/slow")).status_code == 503
        assert (await run.client.get("/readyz")).text == "running: stopping: enough\n"
        assert (await run.client.get("/healthz")).status_code == 200
        go_on.set()
        assert (await in_hand).text == "done"
        assert await run.life == 0


async def test_a_port_that_is_released_late_is_waited_for() -> None:
    async with serving() as run:
        second = HttpServer(
            DemoSettings.model_validate({"http_port": run.http.port}),
            service=Service("second", health=Health()),
            health=Health(),
            metrics=Metrics("second"),
            clock=run.clock,
        )
        with capture_logs() as lines:
            starting = asyncio.create_task(second.start())
            await until(lambda: any(line["event"] == "port_in_use" for line in lines))
        run.service.stop("released")
        assert await run.life == 0
        await starting
        assert second.port == run.http.port
        await second.stop()


async def test_a_taken_port_fails_the_start_with_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_http, "PORT_SECONDS", 0.1)
    async with serving() as run:
        second = Service("second", health=Health())
        http = HttpServer(
            DemoSettings.model_validate({"http_port": run.http.port}),
            service=second,
            health=Health(),
            metrics=Metrics("second"),
            clock=run.clock,
        )
        with pytest.raises(OSError, match=f"cannot serve on 127.0.0.1:{run.http.port}"):
            await http.start()


async def served_serial(port: int) -> int:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(der).serial_number


async def test_a_rotated_certificate_is_served_without_restart(tmp_path: Path) -> None:
    write_certificate(tmp_path, 1)
    async with serving(http_cert_file=tmp_path / "tls.crt", http_key_file=tmp_path / "tls.key") as run:
        assert run.http.url.startswith("https://")
        assert (await run.client.get("/healthz")).status_code == 200
        assert await served_serial(run.http.port) == 1

        good_key = (tmp_path / "tls.key").read_bytes()
        write_certificate(tmp_path, 2)
        new_key = (tmp_path / "tls.key").read_bytes()
        (tmp_path / "tls.key").write_bytes(good_key)  # half rotated: the pair does not fit
        await run.clock.advance(CERTIFICATE_LOOK_SECONDS)
        assert await served_serial(run.http.port) == 1

        (tmp_path / "tls.key").write_bytes(new_key)
        await run.clock.advance(CERTIFICATE_LOOK_SECONDS)
        assert await served_serial(run.http.port) == 2
