"""Trace contexts in headers, spans, their two ways out, and the price on the hot path."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.bus.setup.tls_files import ensure_tls_files
from koordcore.service.telemetry.tracing import (
    FileSink,
    OtlpSink,
    TraceContext,
    Tracer,
    current_context,
    extract,
    inject,
    make_tracer,
    parse_traceparent,
)
from support.otlp_receiver import otlp_receiver, trust_only
from support.spans import read_span_file

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
hex_ids = st.integers(min_value=1).map(lambda n: n)


@given(
    trace=st.integers(min_value=1, max_value=2**128 - 1),
    span=st.integers(min_value=1, max_value=2**64 - 1),
    sampled=st.booleans(),
    state=st.sampled_from(["", "rojo=00f067aa0ba902b7,congo=t61"]),
)
def test_extract_after_inject_is_identity(trace: int, span: int, sampled: bool, state: str) -> None:
    context = TraceContext(f"{trace:032x}", f"{span:016x}", sampled, state)
    headers: dict[str, str] = {"Koord-Type": "PodPlaced"}
    inject(context, headers)
    assert extract(headers) == context


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", True),
    ],
)
def test_valid_traceparents(text: str, sampled: bool) -> None:
    assert parse_traceparent(text) == TraceContext(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00_{TRACE}_{SPAN}_01",
    ],
)
def test_broken_traceparents_begin_a_new_trace(text: str) -> None:
    assert parse_traceparent(text) is None
    assert extract({"traceparent": text}) is None


def test_header_names_are_read_in_any_case() -> None:
    found = extract({"Traceparent": f"00-{TRACE}-{SPAN}-01", "TraceState": "a=b"})
    assert found == TraceContext(TRACE, SPAN, sampled=True, state="a=b")
    assert extract({}) is None


def test_a_chain_of_services_is_one_trace(tmp_path: Path) -> None:
    file = str(tmp_path / "spans.jsonl")
    headers: dict[str, str] = {}
    for service in ("manager", "scheduler", "agent"):
        tracer = Tracer(service, sinks=[FileSink(file)])
        with tracer.span(f"{service}.step", extract(headers), attributes={"pod_uid": "u1"}) as span:
            span.set("seq", 7)
            assert current_context() == span.context
            headers = span.headers()
        tracer.close()
    assert current_context() is None
    spans = read_span_file(file)
    assert [span.service for span in spans] == ["manager", "scheduler", "agent"]
    assert len({span.trace_id for span in spans}) == 1
    assert [span.parent_id for span in spans] == [None, spans[0].span_id, spans[1].span_id]
    assert spans[0].attributes == {"pod_uid": "u1", "seq": 7}
    assert all(0 <= span.end - span.start < 5 for span in spans)


def test_the_file_has_the_promised_fields(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    tracer = make_tracer("agent", instance="i", cluster="c", otlp_endpoint=None, trace_file=str(file), sample_ratio=1.0)
    tracer.emit("tick", None)
    tracer.close()
    (line,) = file.read_text().splitlines()
    assert list(json.loads(line)) == [
        "name", "service", "trace_id", "span_id", "parent_id", "links", "start", "end", "attributes", "error",
    ]  # fmt: skip


def test_fan_in_links_instead_of_parents(tmp_path: Path) -> None:
    file = str(tmp_path / "spans.jsonl")
    tracer = Tracer("scheduler", sinks=[FileSink(file)])
    causes = [tracer.begin() for _ in range(3)]
    with tracer.span("cycle", None, links=causes) as span:
        assert span.context.trace_id not in {cause.trace_id for cause in causes}
    (written,) = read_span_file(file)
    assert written.links == [{"trace_id": cause.trace_id, "span_id": cause.span_id} for cause in causes]
    assert written.parent_id is None


def test_a_failed_span_says_why(tmp_path: Path) -> None:
    file = str(tmp_path / "spans.jsonl")
    tracer = Tracer("manager", sinks=[FileSink(file)])
    with pytest.raises(ValueError, match="no"), tracer.span("apply"):
        raise ValueError("no")
    assert read_span_file(file)[0].error == "ValueError: no"
    assert current_context() is None


def test_the_beginner_of_a_trace_decides_whether_it_is_recorded(tmp_path: Path) -> None:
    file = str(tmp_path / "spans.jsonl")
    tracer = Tracer("scheduler", sample_ratio=0.0, sinks=[FileSink(file)])
    assert not tracer.begin().sampled
    with tracer.span("own") as span:
        assert not span.recording
    assert not tracer.emit("own", None).sampled
    with tracer.span("others", TraceContext(TRACE, SPAN, sampled=True, state="a=b")) as span:
        assert span.recording
        assert span.headers()["tracestate"] == "a=b"
    assert [span.name for span in read_span_file(file)] == ["others"]


def test_about_the_asked_share_is_recorded() -> None:
    tracer = Tracer("manager", sample_ratio=0.25)
    sampled = sum(tracer.begin().sampled for _ in range(4000))
    assert 850 < sampled < 1150


def test_ids_are_distinct_and_valid() -> None:
    tracer = Tracer("manager")
    contexts = [tracer.begin() for _ in range(2000)]
    assert len({context.trace_id for context in contexts}) == 2000
    assert all(parse_traceparent(context.traceparent) == context for context in contexts)


def test_a_line_cut_off_by_a_kill_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    tracer = Tracer("agent", sinks=[FileSink(str(file))])
    tracer.emit("one", None)
    tracer.emit("two", None)
    tracer.close()
    tracer.emit("after close", None)  # ignored
    file.write_bytes(file.read_bytes()[:-5])
    assert [span.name for span in read_span_file(str(file))] == ["one"]


@pytest.mark.parametrize("trusted", ["ours", "others"])
def test_spans_go_to_a_collector_of_a_trusted_authority_only(
    trusted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {name: ensure_tls_files(tmp_path / name, now=datetime.now(UTC)) for name in ("ours", "others")}
    trust_only(files[trusted].ca, monkeypatch)
    with otlp_receiver(files["ours"]) as receiver:
        tracer = make_tracer(
            "agent", instance="i", cluster="c", otlp_endpoint=receiver.url, trace_file=None, sample_ratio=1.0
        )
        tracer.emit("measure", None)
        tracer.close()
    assert [span.name for span in receiver.spans] == (["measure"] if trusted == "ours" else [])


def test_otlp_gets_the_same_span() -> None:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    sink = OtlpSink("http://unused", service="scheduler", instance="i", cluster="c", exporter=exporter)
    tracer = Tracer("scheduler", sinks=[sink])
    cause, other = tracer.begin(), tracer.begin()
    with tracer.span("decide", cause, links=[other], attributes={"node": "n-1"}) as span:
        pass
    tracer.close()
    (sent,) = exporter.get_finished_spans()
    assert sent.context is not None
    assert sent.parent is not None
    assert f"{sent.context.trace_id:032x}" == cause.trace_id
    assert f"{sent.context.span_id:016x}" == span.context.span_id
    assert f"{sent.parent.span_id:016x}" == cause.span_id
    assert f"{sent.links[0].context.trace_id:032x}" == other.trace_id
    assert dict(sent.attributes or {}) == {"node": "n-1"}
    assert sent.resource.attributes["service.name"] == "koord-scheduler"
    assert sent.start_time is not None
    assert sent.end_time is not None
    assert sent.start_time <= sent.end_time
