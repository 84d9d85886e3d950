"""Lines of COPY: the fast ways write the same columns as the plain way."""

import re
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from koord_projector.fold.figures import NodeChange, NodeFigures, Totals
from koord_projector.projecting import fold_process
from koord_projector.projecting.fold_process import as_sent
from koord_projector.store.copytext import SCHEMA_MAX, event_line, line_of, node_lines
from koordcore.bus.client.wire import HEADER_LINE, encode_headers
from koordcore.bus.read.event_headers import EventHeaders
from koordcore.events.envelope import HEADER_SCHEMA, HEADER_TYPE, AggregateRef, Draft, Origin, StoredEvent, seal
from koordcore.events.nodestate import PodsStarted
from koordcore.state import evolution

plain = st.text("abz-/:. 09", max_size=8)
odd = st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), max_size=8)
texts = plain | odd
amounts = st.integers(0, 10**6) | st.integers(-(2**70), 2**70)
counts = st.integers(0, 10**6)


@given(st.builds(Origin, causation_id=texts, correlation_id=texts, actor=texts, occurred_at=texts), texts, odd)
def test_a_fact_has_the_same_line_with_and_without_parsed_headers(origin: Origin, id_: str, uid: str) -> None:
    sealed = seal(Draft(AggregateRef("nodestate", id_), PodsStarted(pods=[uid]), 0), origin, 0, 1)
    block = HEADER_LINE + encode_headers(sealed.headers) + b"\r\n"
    event = StoredEvent(7, sealed.ref, EventHeaders(block), sealed.body, 12)
    assert event_line(event, 7) == event_line(event.with_parsed_headers(), 7)


def test_a_fact_with_a_huge_schema_can_be_sent_to_the_fold() -> None:
    headers = {HEADER_TYPE: "PodsStarted", HEADER_SCHEMA: "9" * 18}
    sent = as_sent(StoredEvent(7, AggregateRef("nodestate", "node-1"), headers, b"{}"))
    assert sent.schema == SCHEMA_MAX
    assert fold_process.message([sent])


@st.composite
def figures(draw: st.DrawFn) -> NodeFigures:
    """Figures whose amounts may be outside of the range of `bigint`, as facts may state them."""
    values: dict[str, object] = {
        each.name: draw(st.booleans())
        if each.type is bool
        else draw(texts)
        if each.type is str
        else draw(counts if each.name in {"pods", "be_pods", "pods_running", "reservations"} else amounts)
        for each in msgspec.structs.fields(NodeFigures)
        if not each.name.startswith("gpu_")
    }
    return NodeFigures(**values)  # type: ignore[arg-type]  # drawn by type


@given(figures(), texts)
def test_the_figures_of_a_node_have_the_columns_of_their_values(drawn: NodeFigures, token: str) -> None:
    changes = [NodeChange(9, token, drawn), NodeChange(10, "node-1", NodeFigures(cpu_milli=10**18))]
    truth = {b"true": b"t", b"false": b"f"}
    fast, plain = (
        node_lines(changes),
        [line_of((each.seq, each.token, *msgspec.structs.astuple(each.figures))) for each in changes],
    )
    for line, expected in zip(fast.splitlines(keepends=True), plain, strict=True):
        columns = line.split(b"\t")
        assert [*columns[:2], *(truth.get(each, each) for each in columns[2:4]), *columns[4:]] == expected.split(b"\t")


@given(figures(), figures())
def test_totals_after_a_change_of_a_node_are_those_without_it_and_with_it(
    earlier: NodeFigures, later: NodeFigures
) -> None:
    changed, expected = Totals(nodes=3, cpu_milli=70), Totals(nodes=3, cpu_milli=70)
    changed.replace(earlier, later)
    expected.add(earlier, -1)
    expected.add(later, 1)
    assert changed == expected


def test_states_evolve_by_position_and_time_of_an_event_alone() -> None:
    """The process that folds a rebuild gets no other headers of a fact (`fold_process`)."""
    (folder,) = evolution.__path__
    sources = [path.read_text() for path in Path(folder).glob("*.py")]
    read = {name for source in sources for name in re.findall(r"\bat\.(\w+)", source)}
    assert read == {"seq", "occurred_at"}
    assert {name for source in sources for name in re.findall(r"(\w+): StoredEvent\b", source)} <= {
        "at",
        "_",
        "__",
        "___",
    }
