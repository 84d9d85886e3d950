"""The pure projection: rows answer for every past position what a fold to that position says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koord_projector.fold import lives as lives_module
from koord_projector.fold.figures import NO_FIGURES, NodeChange, NodeFigures
from koord_projector.fold.lives import EndedLife, Version
from koord_projector.fold.pods import Episode, Phase
from koord_projector.fold.projection import LONGEST_ID, AggregateRow, Changes, Projection
from koordcore.events import CATALOGUE
from koordcore.events.envelope import AggregateRef, StoredEvent
from koordcore.events.registry import UnreadableEvent
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY
from koordcore.state import ClusterState
from koordcore.state.aggregates import NodeLedger, NodeSpecState, PodState
from koordcore.state.cluster import decode_state, evolve
from koordcore.state.fold import AggregateState
from koordcore.state.reservations import unused_amounts
from koordcore.stories.modifications import KINDS, AuditReader, Modification
from support.depth import examples
from support.histories.actions import Action, actions
from support.histories.history import every_kind_once, history
from support.projector.world import pods_by_fold

LIVELY = (
    "add-pod", "change-pod", "delete-pod", "place", "place", "reallocate", "release",
    "started", "started", "stopped", "agent",
)  # fmt: skip
# Few pods and many steps on them, so that lives get long; variations 0 and 3 are the node of pod 0, 1 that of pod 1.
lives = st.lists(
    st.builds(
        Action,
        st.sampled_from((*LIVELY, "add-node", "change-node", "delete-node")),
        st.integers(0, 1),
        st.integers(0, 3),
    ),
    min_size=25,
    max_size=70,
)


class Tables:
    """What the writer would have made of the changes, in memory."""

    def __init__(self) -> None:
        self.aggregates: dict[AggregateRef, AggregateRow] = {}
        self.versions: list[Version] = []
        self.ended: list[EndedLife] = []
        self.modifications: list[Modification] = []
        self.episodes: dict[tuple[str, int], Episode] = {}
        self.nodes: list[NodeChange] = []
        self.series: dict[int, object] = {}

    def write(self, changes: Changes) -> None:
        for row in changes.new_aggregates:
            assert row.ref not in self.aggregates
            self.aggregates[row.ref] = row
        for row in changes.changed_aggregates:
            assert row.ref in self.aggregates
            self.aggregates[row.ref] = row
        for ref in changes.gone_aggregates:
            del self.aggregates[ref]
        for pod in changes.pods:
            assert ((pod.uid, pod.from_seq) in self.episodes) == pod.stored
            pod.stored = True
            self.episodes[pod.uid, pod.from_seq] = pod
        self.nodes.extend(changes.nodes)
        self.series.update({row.second: row for row in changes.series})
        self.versions.extend(changes.versions)
        self.ended.extend(changes.lives)
        self.modifications.extend(changes.modifications)


def project(events: list[StoredEvent], sizes: list[int]) -> Tables:
    """Folds in batches of the given sizes (cycled), lending states as the loader does."""
    tables, projection, start, turn = Tables(), Projection(), 0, 0
    while start < len(events):
        batch = events[start : start + sizes[turn % len(sizes)]]
        for ref in projection.unknown_states(batch):
            row = tables.aggregates[ref]
            projection.lend(ref, decode_state(ref.kind, row.state), row.life.copy())
        for event in batch:
            projection.apply(event)
        tables.write(projection.take_changes())
        start, turn = start + len(batch), turn + 1
    return tables


def phase_at(episode: Episode, position: int) -> Phase | None:
    """What the SQL of `read_pods` says."""
    if episode.from_seq > position or (episode.to_seq is not None and episode.to_seq <= position):
        return None
    if episode.deleted_seq is not None and episode.deleted_seq <= position:
        return Phase.TERMINATING
    if episode.placed_seq is None or episode.placed_seq > position:
        return Phase.PENDING
    started, stopped = episode.started_seq, episode.stopped_seq
    runs = started is not None and started <= position and (stopped is None or stopped > position)
    return Phase.RUNNING if runs else Phase.PLACED


@settings(max_examples=examples(120))
@given(st.one_of(actions, lives))
def test_any_past_list_of_pods_is_the_folds(steps: list[Action]) -> None:
    events = history(steps)
    tables, state = project(events, [3, 1, 7]), ClusterState()
    for event in events:
        state.apply(event)
        listed = {
            episode.uid: (phase, episode.node if phase is not Phase.PENDING else "")
            for episode in tables.episodes.values()
            if (phase := phase_at(episode, event.seq)) is not None
        }
        assert listed == pods_by_fold(state)
        places = state.of_kind(PodState)
        assert {
            episode.uid: episode.facts.requests
            for episode in tables.episodes.values()
            if phase_at(episode, event.seq) not in (None, Phase.PENDING)
        } == {uid: places[uid].requests for uid, (phase, _) in listed.items() if phase is not Phase.PENDING}


@settings(max_examples=examples(120))
@given(st.one_of(actions, lives))
def test_any_past_figures_of_nodes_are_the_folds(steps: list[Action]) -> None:
    events = history(steps)
    tables, state = project(events, [5]), ClusterState()
    for event in events:
        state.apply(event)
        figures: dict[str, NodeFigures] = {
            change.token: change.figures for change in tables.nodes if change.seq <= event.seq
        }
        specs, ledgers = state.of_kind(NodeSpecState), state.of_kind(NodeLedger)
        for token in {*figures, *specs, *ledgers}:
            found, spec, ledger = figures.get(token, NO_FIGURES), specs.get(token), ledgers.get(token)
            assert found.exists == (spec is not None)
            assert found.cpu_requested == (ledger.requested.get("cpu", 0) if ledger else 0)
            rests = unused_amounts(ledger.pods) if ledger else {}
            assert found.reservations == len(rests)
            assert found.pods == (len(ledger.pods) if ledger else 0) - len(rests)
            assert found.cpu_unused_reserved == sum(rest.get("cpu", 0) for rest in rests.values())
            assert found.be_pods == (_be_pods(ledger) if ledger else 0)


@settings(max_examples=examples(100))
@given(st.one_of(actions, lives), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_rows_do_not_depend_on_batching(steps: list[Action], sizes: list[int]) -> None:
    events = history(steps)
    one, other = project(events, [1]), project(events, sizes)
    assert one.aggregates == other.aggregates
    assert one.episodes == other.episodes
    assert one.nodes == other.nodes
    assert one.series == other.series


def test_totals_and_counts_are_the_sums_over_rows() -> None:
    events = history(every_kind_once())
    projection = Projection()
    for event in events:
        projection.apply(event)
    figures = [each for each in projection.nodes.figures.values() if each.exists]
    assert projection.totals.nodes == len(figures)
    assert projection.totals.cpu_requested == sum(each.cpu_requested for each in figures)
    living = [episode.phase() for episode in projection.pods.living.values()]
    assert projection.pods.counts == {phase: living.count(phase) for phase in Phase}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"body": b'{"object": 1}'}, "body"),
        ({"body": b'{"object":{},"more":"\xff"}'}, "utf-8"),
        ({"body": b'{"object":{},"more":"\x00"}'}, "malformed"),
        ({"ref": AggregateRef("podspec", "x" * (LONGEST_ID + 1))}, "characters"),
        ({"headers": {"Koord-Type": "PodTeleported"}}, "no such event type"),
    ],
)
def test_an_unreadable_event_changes_nothing(change: dict[str, object], reason: str) -> None:
    projection = Projection()
    good = history([Action("add-pod", 0, 0)])[0]
    fields: dict[str, object] = {"seq": 1, "ref": good.ref, "headers": good.headers, "body": good.body} | change
    with pytest.raises(UnreadableEvent, match=reason):
        projection.apply(StoredEvent(**fields))  # type: ignore[arg-type]  # any field is replaced
    assert projection.position == 0
    assert not projection.pods.living
    projection.apply(good)
    assert projection.position == 1


def _be_pods(ledger: NodeLedger) -> int:
    return sum(1 for pod in ledger.pods.values() if {BATCH_CPU, BATCH_MEMORY} & pod.requests.keys())


def state_then(tables: Tables, events: list[StoredEvent], ref: AggregateRef, position: int) -> AggregateState | None:
    """The state at a position, as the queries compute it: the newest version of the life, and the events since then."""
    living = tables.aggregates.get(ref)
    begins = [each.from_seq for each in tables.ended if each.ref == ref and each.from_seq <= position < each.to_seq]
    if living is not None and living.life.from_seq <= position:
        begins.append(living.life.from_seq)
    if not begins:
        return None
    (begin,) = begins
    versions = [each for each in tables.versions if each.ref == ref and begin <= each.seq <= position]
    newest = max(versions, key=lambda each: each.seq, default=None)
    state = None if newest is None else decode_state(ref.kind, newest.state)
    after = begin - 1 if newest is None else newest.seq
    since = [event for event in events if event.ref == ref and after < event.seq <= position]
    assert len(since) <= lives_module.EVENTS_OF_VERSION
    for stored in since:
        event = CATALOGUE.read(stored)
        state = state if event is None else evolve(state, event, stored)
    return state


@settings(max_examples=examples(60))
@given(st.one_of(actions, lives), st.lists(st.integers(1, 9), min_size=1, max_size=4), st.data())
def test_versions_and_lives_give_the_state_of_the_fold_at_any_position(
    steps: list[Action], sizes: list[int], data: st.DataObject
) -> None:
    events = history(steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lives_module, "EVENTS_OF_VERSION", data.draw(st.integers(1, 4)))
        tables = project(events, sizes)
        position, state = data.draw(st.integers(0, len(events))), ClusterState()
        for event in events[:position]:
            state.apply(event)
        for ref in {event.ref for event in events}:
            assert state_then(tables, events, ref, position) == state.get(ref), ref


@settings(max_examples=examples(40))
@given(actions, st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_modifications_are_those_that_the_audit_reads_from_the_log(steps: list[Action], sizes: list[int]) -> None:
    events, reader = history([*every_kind_once(), *steps]), AuditReader()
    read = [found for event in events if event.ref.kind in KINDS for found in reader.read(event)]
    assert project(events, sizes).modifications == read
    assert read


@pytest.mark.parametrize(("begin", "end"), [(1, 2), (1, 1 << 40), (7, 8), (1000, 1024), (1000, 1031)])
def test_what_lives_at_a_position_is_within_reach_of_its_span(begin: int, end: int) -> None:
    span = lives_module.span_of(begin, end)
    assert begin > (end - 1) - (1 << span)
    assert 0 < span <= 62
    assert lives_module.span_of(begin, None) == 0
