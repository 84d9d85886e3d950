"""The core of the projector: an event changes the state of its aggregate, rows of pods and nodes, and totals.

    refs = projection.unknown_states(events)     # 1. states that must be read from the database
    projection.lend(ref, state)                  # 2. for each of them
    projection.apply(event)                      # 3. in order
    changes = projection.take_changes()          # 4. rows to write in one transaction

Only states of kinds that change often stay in memory. States of pods are read from the database when needed. So each
living pod only needs one `Episode` in memory, and not its object.
"""

from collections.abc import Iterable, Sequence

import msgspec
from koordcore.events import CATALOGUE
from koordcore.events.envelope import WRITTEN_BY_NODES, AggregateRef, Event, StoredEvent, name_token
from koordcore.events.gateway import PodBound
from koordcore.events.node_ledger import NodeResourcesReturned, NodeResourcesTaken, PodOnNode
from koordcore.events.node_messages import is_name, why_no_fact
from koordcore.events.nodestate import PodsStarted, PodsStopped
from koordcore.events.objects import (
    CustomObjectDeleted,
    CustomObjectObserved,
    NodeSpecDeleted,
    PodSpecAdded,
    PodSpecChanged,
    PodSpecDeleted,
)
from koordcore.events.pod import PodPlaced, PodReallocated, PodReleased
from koordcore.events.registry import UnreadableEvent
from koordcore.protocol.hardware.devices import DeviceDetails, read_devices
from koordcore.protocol.resource_names import BATCH_CPU, BATCH_MEMORY
from koordcore.state.aggregates import CustomObjectState, NodeAgentState, NodeLedger, PodSpecState
from koordcore.state.fold import AggregateState
from koordcore.state.registry import EVOLVE
from koordcore.stories.acts import Closer
from koordcore.stories.device_cards import GPU_TYPE, ShareTotals, cards_with_holders, gpu_totals
from koordcore.stories.modifications import CONFIGURATION, Modification, modifications_of
from koordcore.stories.modifications import KINDS as AUDITED
from koordcore.values import codec
from koordcore.values.allocation import is_reservation

from koord_projector.fold.figures import NODE_KINDS, NodeBook, NodeChange, Series, SeriesRow, Totals
from koord_projector.fold.lives import EndedLife, Life, LifeBook, Version
from koord_projector.fold.pods import Episode, PodBook

KEPT_KINDS = frozenset((*NODE_KINDS, CONFIGURATION.kind, "config", "fold"))
"""Kinds whose states stay in memory: there are few of them, and they change often."""
AUDITED_KINDS = frozenset(AUDITED)
"""Kinds whose facts may be modifications by the descheduler."""
DEVICES = "devices="
"""Prefix of the ids of Device objects among the aggregates `customspec`."""
LONGEST_ID = 512
"""Length above which ids of aggregates are refused, because an index cannot store them."""


class AggregateRow(msgspec.Struct, frozen=True):
    """One row of the table `aggregates`: an aggregate, the sequence of its last event, its state as JSON, its life."""

    ref: AggregateRef
    seq: int
    state: bytes
    life: Life


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Rows to write in one transaction: the changes by all facts after position `after` up to `position`."""

    after: int  # Position that the tables have now
    position: int  # Position that they have afterwards
    event_id: str  # Id of the fact at `position`
    events: list[StoredEvent]  # The facts, for the table `events`
    # For each of them, the greatest time at which the server stored a fact up to it, in nanoseconds since 1970.
    reached_ns: list[int]
    new_aggregates: Sequence[AggregateRow]  # Rows of `aggregates` to insert
    changed_aggregates: Sequence[AggregateRow]  # Rows of `aggregates` to replace
    gone_aggregates: Sequence[AggregateRef]  # Rows of `aggregates` to delete
    pods: list[Episode]  # Rows of `pods`
    nodes: list[NodeChange]  # Rows of `node_versions`
    series: list[SeriesRow]  # Rows of `cluster_series`
    versions: list[Version]  # Rows of `aggregate_versions`
    lives: list[EndedLife]  # Rows of `aggregate_lives`
    modifications: list[Modification]  # Rows of `modifications`


class Projection:
    """The fold. After the rows of `take_changes` are written, its state equals the tables. One task uses it.

    `position` is that of the tables; 0 if they are empty. `reached_ns` is the greatest time at which the server stored
    a fact up to it, in nanoseconds since 1970.
    """

    def __init__(self, position: int = 0, reached_ns: int = 0) -> None:
        self.position = position
        self._reached_ns = reached_ns
        self.pods = PodBook()
        self.nodes = NodeBook()
        self.totals = Totals()
        self.series = Series()
        self._after = position
        self.event_id = ""
        self._known: set[AggregateRef] = set()
        self._states: dict[AggregateRef, AggregateState | None] = {}
        self._gpus: dict[str, list[DeviceDetails]] = {}
        self._dirty: dict[AggregateRef, None] = {}
        self._events: list[StoredEvent] = []
        self._reached: list[int] = []
        self._lives = LifeBook()
        self._modifications: list[Modification] = []
        self.closing: dict[str, Closer] = {}
        """Name of a node that the last round of the descheduler closes, until it is closed -> who chose it."""

    @property
    def aggregate_count(self) -> int:
        return len(self._known)

    def know(self, refs: Iterable[AggregateRef]) -> None:
        """The table `aggregates` has a row for each of these aggregates."""
        self._known.update(refs)

    def load_totals(self) -> None:
        """Compute the totals from the nodes that were loaded."""
        for figures in self.nodes.figures.values():
            self.totals.add(figures, 1)

    def unknown_states(self, events: Sequence[StoredEvent]) -> list[AggregateRef]:
        """Return the aggregates whose state is not in memory. Pass each state to `lend` before `apply`."""
        states, known = self._states, self._known
        wanted = dict.fromkeys(event.ref for event in events if event.ref in known and event.ref not in states)
        return list(wanted)

    def lend(self, ref: AggregateRef, state: AggregateState, life: Life) -> None:
        self._states[ref] = state
        self._lives.living[ref] = life

    def know_devices(self, ref: AggregateRef, state: AggregateState) -> None:
        """Set the GPUs of a node from the state of its Device object."""
        self._set_gpus(ref.id.removeprefix(DEVICES), state)

    def apply(self, stored: StoredEvent) -> Event | None:
        """Apply one fact and return it decoded.

        None if it was applied before, if it is passed over (`Catalogue.read`), or if its type is ignorable and its
        version is newer than this code.

        Raises:
            UnreadableEvent: It cannot be decoded. Nothing is changed; the fold has to stop before it.
        """
        if stored.seq <= self.position:
            return None
        stored = stored.with_parsed_headers()
        ref = stored.ref
        event = CATALOGUE.read(stored)
        if event is None and CATALOGUE.why_passed_over(stored):
            self._advance(stored)  # no row either: not all of it may be storable
            return None
        if reason := why_unstorable(stored):
            raise UnreadableEvent(stored.seq, stored.type, reason)
        state: AggregateState | None = None
        if event is not None:
            before = self._states.get(ref)
            state = EVOLVE[type(event)](before, event, stored)
            self.series.before_event(stored.occurred_at, self.totals, self.pods.counts)
            self._states[ref] = state
            self._dirty[ref] = None
            self._lives.changed(ref, before, state, stored.seq)
            if ref.kind in AUDITED_KINDS:
                self._audit(stored, event, before, state)
            self._update_rows(ref, event, stored, before, state)
        self._advance(stored)
        self._events.append(stored)
        self._reached.append(self._reached_ns)
        return event

    def skip(self, stored: StoredEvent) -> None:
        """Move behind a fact without applying it, because an operator ordered so."""
        if stored.seq > self.position:
            self._advance(stored)

    def take_changes(self) -> Changes:
        """Return the rows that changed since the last call. Write them before more facts are applied."""
        new: list[AggregateRow] = []
        changed: list[AggregateRow] = []
        gone: list[AggregateRef] = []
        known, states = self._known, self._states
        for ref in self._dirty:
            state = states[ref]
            if state is not None:
                row = AggregateRow(ref, state.seq, codec.encode_canonical(state), self._lives.living[ref].copy())
                if ref in known:
                    changed.append(row)
                else:
                    new.append(row)
                    known.add(ref)
            elif ref in known:
                gone.append(ref)
                known.discard(ref)
            if state is None or ref.kind not in KEPT_KINDS:
                del states[ref]
                self._lives.living.pop(ref, None)
        self._dirty = {}
        return self._changes(pods=self.pods.take_touched(), new=new, changed=changed, gone=gone)

    def take_history(self) -> Changes:
        """Return the rows that will not change any more, for a rebuild into empty tables.

        States of aggregates and rows of living pods stay in memory until `take_rest`.
        """
        for ref in self._dirty:
            if self._states[ref] is None:
                del self._states[ref]
        self._dirty = {}
        return self._changes(pods=self.pods.take_closed())

    def take_rest(self) -> Changes:
        """Return the rows that `take_history` left in memory. It is the last call."""
        new = [
            AggregateRow(ref, state.seq, codec.encode_canonical(state), self._lives.living[ref])
            for ref, state in self._states.items()
            if state is not None
        ]
        return self._changes(pods=self.pods.take_touched(), new=new)

    def _changes(
        self,
        *,
        pods: list[Episode],
        new: Sequence[AggregateRow] = (),
        changed: Sequence[AggregateRow] = (),
        gone: Sequence[AggregateRef] = (),
    ) -> Changes:
        changes = Changes(
            after=self._after,
            position=self.position,
            event_id=self.event_id,
            events=self._events,
            reached_ns=self._reached,
            new_aggregates=new,
            changed_aggregates=changed,
            gone_aggregates=gone,
            pods=pods,
            nodes=self.nodes.take_changes(),
            series=self.series.take_rows(self.totals, self.pods.counts),
            versions=self._lives.take_versions(),
            lives=self._lives.take_ended(),
            modifications=self._modifications,
        )
        self._after, self._events, self._reached, self._modifications = self.position, [], [], []
        return changes

    def _audit(
        self, stored: StoredEvent, event: Event, before: AggregateState | None, after: AggregateState | None
    ) -> None:
        configured = self._states.get(CONFIGURATION)
        self._modifications.extend(modifications_of(stored, event, before, after, configured, self.closing))

    def _advance(self, stored: StoredEvent) -> None:
        self.position = stored.seq
        self._reached_ns = max(self._reached_ns, stored.stored_at_ns)
        self.event_id = id_in_tables(stored)
        self.series.after_event(stored.seq)

    def _update_rows(
        self,
        ref: AggregateRef,
        event: Event,
        at: StoredEvent,
        before: AggregateState | None,
        state: AggregateState | None,
    ) -> None:
        be_pods: int | None = None
        gpus: ShareTotals | None = None
        match event:  # the most frequent ones first
            case NodeResourcesTaken() | NodeResourcesReturned():
                ledger = before if isinstance(before, NodeLedger) else None
                be_pods = self._be_pods_after(ref.id, event, ledger)
                if _touches_devices(event, ledger):
                    gpus = self._shares(ref.id, state)
            case PodsStarted():
                for uid in event.pods:
                    self.pods.started(uid, ref.id, at)
            case PodsStopped():
                for uid in event.pods:
                    self.pods.stopped(uid, ref.id, at)
            case PodBound() if self.pods.is_placed(ref.id) and not (event.labels or event.annotations):
                pass  # what lists show of the object is as before
            case PodSpecAdded() | PodSpecChanged() | PodBound() if isinstance(state, PodSpecState):
                self.pods.submitted(ref.id, state.object, at)
            case PodPlaced() if not is_reservation(ref.id, event.allocation):
                agent = self._states.get(AggregateRef("nodestate", name_token(event.node)))
                runs_there = isinstance(agent, NodeAgentState) and ref.id in agent.running
                self.pods.placed(ref.id, event, at, runs_there=runs_there)
            case PodReallocated() if not is_reservation(ref.id, event.allocation):
                self.pods.reallocated(ref.id, event, at)
            case CustomObjectObserved() | CustomObjectDeleted() if ref.id.startswith(DEVICES):
                token = ref.id.removeprefix(DEVICES)
                self._set_gpus(token, state)
                shares = self._shares(token, self._states.get(AggregateRef("node", token)))
                self.nodes.changed(token, None, seq=at.seq, gpus=shares)
            case PodReleased():
                self.pods.released(ref.id, at)
            case PodSpecDeleted():
                self.pods.deleted(ref.id, at)
            case _:
                pass
        if ref.kind in NODE_KINDS:
            if isinstance(event, NodeSpecDeleted):
                earlier, later = self.nodes.node_gone(ref.id, seq=at.seq)
            else:
                earlier, later = self.nodes.changed(ref.id, state, seq=at.seq, be_pods=be_pods, gpus=gpus)
            if earlier is not later and ref.kind != "nodestate":  # what agents state is in no total
                self.totals.replace(earlier, later)

    def _set_gpus(self, token: str, state: AggregateState | None) -> None:
        if gpus := _gpus_of(state):
            self._gpus[token] = gpus
        else:
            self._gpus.pop(token, None)

    def _shares(self, token: str, ledger: AggregateState | None) -> ShareTotals:
        pods = ledger.pods if isinstance(ledger, NodeLedger) else {}
        return gpu_totals(cards_with_holders(self._gpus.get(token, ()), pods))

    def _be_pods_after(
        self, token: str, event: NodeResourcesTaken | NodeResourcesReturned, ledger: NodeLedger | None
    ) -> int:
        """Number of pods with batch resources after the event."""
        held = ledger.pods if ledger is not None else {}
        figures = self.nodes.figures.get(token)
        count = figures.be_pods if figures is not None else 0
        if isinstance(event, NodeResourcesTaken):
            added: dict[str, bool] = {pod.uid: _is_batch(pod.requests) for pod in event.pods}
            count += sum(added.values())
            return count - sum(1 for uid in added if uid in held and _is_batch(held[uid].requests))
        return count - sum(1 for uid in set(event.pods) if uid in held and _is_batch(held[uid].requests))


def _gpus_of(state: AggregateState | None) -> list[DeviceDetails]:
    stated = state.object if isinstance(state, CustomObjectState) else None
    return [device for device in read_devices(stated)[0] if device.type == GPU_TYPE] if stated is not None else []


def _touches_devices(event: NodeResourcesTaken | NodeResourcesReturned, ledger: NodeLedger | None) -> bool:
    """Whether a pod of the event gets, changes or releases devices. `ledger`: before the event; None: empty."""
    held = ledger.pods if ledger is not None else {}
    if isinstance(event, NodeResourcesTaken):
        return any(pod.allocation.devices or _has_devices(held.get(pod.uid)) for pod in event.pods)
    return any(_has_devices(held.get(uid)) for uid in event.pods)


def _has_devices(pod: PodOnNode | None) -> bool:
    return pod is not None and bool(pod.allocation.devices)


def _is_batch(requests: dict[str, int]) -> bool:
    return BATCH_CPU in requests or BATCH_MEMORY in requests


def id_in_tables(stored: StoredEvent) -> str:
    """Id of an event as the tables keep it for the position: "" for one that is too long or not printable, which only a
    message can have that is passed over.
    """
    text = stored.event_id
    return text if len(text) <= LONGEST_ID and text.isprintable() else ""


def has_row(stored: StoredEvent) -> bool:
    """Whether a message gets a row in the table `events`: it is not passed over, and Postgres can store it."""
    if stored.ref.kind in WRITTEN_BY_NODES:
        return not CATALOGUE.why_passed_over(stored)
    # The headers of `seal` in its order need not be parsed to know that it is a fact.
    is_usual = stored.header_texts() is not None and is_name(stored.ref.id)
    return not why_unstorable(stored) and (is_usual or not why_no_fact(stored))


def why_unstorable(stored: StoredEvent) -> str:
    """Why Postgres cannot store a fact; "" if it can. The body must be valid UTF-8 without NUL."""
    if len(stored.ref.id) > LONGEST_ID:
        return f"the aggregate's id has more than {LONGEST_ID} characters"
    if b"\0" in stored.body:
        return "body: a NUL byte"
    if not stored.body.isascii():
        try:
            stored.body.decode()
        except UnicodeDecodeError as cause:
            return f"body: {cause}"
    return ""
