"""A window of the log decided anew under another slo-controller-config: what `koord replay --rerun-manager` compares.

Nothing is written: the log is read, and one state lives in this process, with what would be published beside it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import msgspec
from koord_manager.domain.admission.facts import ConfigNames
from koord_manager.domain.slo_config import check_slo_config
from koord_manager.domain.view import ManagerView
from koord_manager.domain.what_if.fates import NodeFate, level_of
from koord_manager.domain.what_if.run import ManagerWhatIf
from koord_manager.domain.what_if.tally import Tally
from koord_manager.domain.what_if.told import ManagerTold
from koordcore.events.envelope import StoredEvent
from koordcore.events.registry import UnreadableEvent
from koordcore.ports.eventlog import EventLog
from koordcore.ports.observations import ObservationLog
from koordcore.protocol.manifests import read_documents, read_manifest
from koordcore.protocol.objects import ConfigMap
from koordcore.state.aggregates import NodePolicyState
from koordcore.state.node_policy import lent_resources
from koordcore.values.invalid import InvalidInput

from koordctl.folding import BATCH, everything_kept, skipped_positions
from koordctl.log import LogTrouble


class Lent(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What all nodes lend together: milli-cores and bytes; nodes: how many of them lend anything."""

    nodes: int = 0
    batch_cpu_milli: int = 0
    batch_memory_bytes: int = 0
    mid_cpu_milli: int = 0
    mid_memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeComparison:
    """What was recorded and what would have been.

    begin, end      positions; the window is what lies behind `begin` up to `end`
    reports         usage reports of nodes that were still kept
    tally           decisions in the window
    fates           of the nodes for which something else would stand at `end`
    before, after   what is lent at `end`
    """

    begin: int
    end: int
    reports: int
    tally: Tally
    fates: list[NodeFate]
    before: Lent
    after: Lent

    def document(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "from": self.begin,
            "to": self.end,
            "loadReports": self.reports,
            "decisions": {
                "recorded": self.tally.recorded,
                "rerun": self.tally.anew,
                "same": self.tally.same,
                "reportNotKept": self.tally.not_kept,
            },
            "before": msgspec.to_builtins(self.before),
            "after": msgspec.to_builtins(self.after),
            "nodes": [
                {
                    "node": fate.node,
                    "recorded": _standing(fate.recorded),
                    "rerun": _standing(fate.anew),
                    "nodeSLO": [asdict(one) for one in slo_differences(fate)],
                    "measuring": [asdict(one) for one in measuring_differences(fate)],
                    "ratios": [asdict(one) for one in ratio_differences(fate)],
                    "devices": [asdict(one) for one in device_differences(fate)],
                    "health": [asdict(one) for one in health_differences(fate)],
                }
                for fate in self.fates
            ],
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """A field, and its two values; None: it is not there."""

    path: str
    recorded: Any
    rerun: Any


def slo_differences(fate: NodeFate) -> list[Difference]:
    """Fields of the NodeSLO that would be another."""
    return list(_differences((fate.recorded and fate.recorded.slo) or {}, (fate.anew and fate.anew.slo) or {}))


def measuring_differences(fate: NodeFate) -> list[Difference]:
    """Fields of `metricCollectPolicy` that would be another."""
    before, after = (policy.metric_policy if policy else None for policy in (fate.recorded, fate.anew))
    return list(_differences(before or {}, after or {}))


def ratio_differences(fate: NodeFate) -> list[Difference]:
    """The ratios that would be others: texts of the node's annotations."""
    before, after = (_ratios(policy or NodePolicyState(seq=0)) for policy in (fate.recorded, fate.anew))
    return list(_differences(before, after))


def health_differences(fate: NodeFate) -> list[Difference]:
    """Level, weight and offsets of the node's health that would be others."""
    before, after = (_health(policy or NodePolicyState(seq=0)) for policy in (fate.recorded, fate.anew))
    return list(_differences(before, after))


def device_differences(fate: NodeFate) -> list[Difference]:
    """Resources and labels that the node's devices would give it otherwise."""
    before, after = (_devices(policy or NodePolicyState(seq=0)) for policy in (fate.recorded, fate.anew))
    return list(_differences(before, after))


def _devices(policy: NodePolicyState) -> dict[str, Any]:
    return {"resources": policy.devices, "labels": policy.device_labels}


def _health(policy: NodePolicyState) -> dict[str, Any]:
    level = level_of(policy)
    return dict(zip(("level", "weight", "offsets"), level, strict=True)) if level is not None else {}


def _ratios(policy: NodePolicyState) -> dict[str, str | None]:
    return {"cpuNormalization": policy.cpu_normalization, "amplification": policy.amplification}


def lends_otherwise(fate: NodeFate) -> bool:
    """Whether batch or mid resources would be others, of the node or of one of its zones."""
    before, after = fate.recorded or NodePolicyState(seq=0), fate.anew or NodePolicyState(seq=0)
    return (lent_resources(before), before.zones) != (lent_resources(after), after.zones)


def read_chosen(text: bytes) -> dict[str, str]:
    """The data of the ConfigMap in a file.

    raises    InvalidInput, InvalidManifest: with the field, the rule and the value of what cannot be taken
    """
    documents = read_documents(text)
    maps = [manifest.object for manifest in map(read_manifest, documents) if isinstance(manifest.object, ConfigMap)]
    if len(maps) != 1 or len(documents) != 1:
        raise InvalidInput("one ConfigMap with the keys of slo-controller-config", f"{len(documents)} documents")
    for violation in check_slo_config(maps[0].data, {}, []):
        raise violation.at("data")
    return maps[0].data


async def compare_nodes(
    log: EventLog,
    observations: ObservationLog,
    chosen: Mapping[str, str] | None,
    begin: int,
    end: int,
    progress: Callable[[int], None],
    *,
    names: ConfigNames | None = None,
    told: ManagerTold | None = None,
) -> NodeComparison:
    """Fold to `begin`, decide what lies behind it up to `end` anew.

    chosen      data of the ConfigMap to try; None: what was in force
    progress    called with positions, from 0 to end
    names       of the ConfigMap that the manager took its configuration from; None: as by default
    told        flags of the recorded manager; None: as by default
    raises      LogTrouble naming an event that cannot be read and that nobody said to skip
    """
    skipped = await skipped_positions(log)
    view = ManagerView(config_names=names)
    reports = await everything_kept(observations)
    what_if = ManagerWhatIf(view, reports, chosen=chosen, told=told)
    window: list[StoredEvent] = []
    try:
        async for batch in log.history(0, end, batch=BATCH):
            for stored in batch:
                if stored.seq in skipped:
                    view.state.skip(min(stored.seq, begin))
                elif stored.seq <= begin:
                    what_if.before(stored)
                else:
                    window.append(stored)
            progress(min(batch[-1].seq, begin))
        what_if.rerun(window, progress, until=await _next_moment(log, end))
    except UnreadableEvent as error:
        raise LogTrouble(f"{error}; a recorded skip passes over it: koord bus skip --help") from error
    existing = view.nodes()
    recorded = view.state.of_kind(NodePolicyState)
    return NodeComparison(
        begin=begin,
        end=end,
        reports=len(reports),
        tally=what_if.nodes.tally,
        fates=what_if.nodes.fates(),
        before=_lent(recorded[token] for token in existing if token in recorded),
        after=_lent(what_if.nodes.anew[token] for token in existing if token in what_if.nodes.anew),
    )


async def _next_moment(log: EventLog, position: int) -> str | None:
    """When the event behind a position occurred; None: there is none."""
    if (await log.head()).last_seq <= position:
        return None
    following = [stored async for batch in log.history(position, position + 1) for stored in batch]
    return following[0].occurred_at if following else None


def _lent(policies: Iterable[NodePolicyState]) -> Lent:
    lending = [policy for policy in policies if policy.batch_cpu_milli is not None or policy.mid_cpu_milli is not None]
    return Lent(
        nodes=len(lending),
        batch_cpu_milli=sum(policy.batch_cpu_milli or 0 for policy in lending),
        batch_memory_bytes=sum(policy.batch_memory_bytes or 0 for policy in lending),
        mid_cpu_milli=sum(policy.mid_cpu_milli or 0 for policy in lending),
        mid_memory_bytes=sum(policy.mid_memory_bytes or 0 for policy in lending),
    )


def _standing(policy: NodePolicyState | None) -> dict[str, Any] | None:
    """What is lent, why, and the terms that it was computed from."""
    if policy is None:
        return None
    return {
        "batchCpuMilli": policy.batch_cpu_milli,
        "batchMemoryBytes": policy.batch_memory_bytes,
        "midCpuMilli": policy.mid_cpu_milli,
        "midMemoryBytes": policy.mid_memory_bytes,
        "reason": policy.reason,
        "computedAt": policy.computed_at,
        "terms": msgspec.to_builtins(policy.terms),
        "midTerms": msgspec.to_builtins(policy.mid_terms),
        "zones": msgspec.to_builtins(policy.zones),
    }


def _differences(recorded: Mapping[str, Any], rerun: Mapping[str, Any], at: str = "") -> Iterator[Difference]:
    for name in sorted(recorded.keys() | rerun.keys()):
        before, after = recorded.get(name), rerun.get(name)
        path = f"{at}.{name}" if at else name
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(cast("dict[str, Any]", before), cast("dict[str, Any]", after), path)
        elif before != after:
            yield Difference(path, before, after)
