"""`koord replay --rerun-manager`: decide again about nodes, recommendations and admission under other settings.

Warnings about the tried files name values that are accepted but probably have another effect than intended.
`koord lint` and `koord apply` give the same warnings.
"""

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from koord_manager.domain.admission.context.facts import ConfigNames
from koord_manager.domain.admission.context.profiles import ColocationProfile
from koord_manager.domain.controller_names import CONTROLLERS, PLUGINS, enabled_of
from koord_manager.domain.controllers.recommender.settings import read_settings
from koord_manager.domain.documents.warnings import document_warnings
from koord_manager.domain.what_if.nodes import NodeFate
from koord_manager.domain.what_if.recording import RecordedFlags
from koord_manager.settings import ManagerSettings
from koordcore.protocol.manifests import InvalidManifest, shape_manifest
from koordcore.protocol.objects import ConfigMap
from koordcore.service.flags import parse_feature_gates
from koordcore.state.aggregates import NodePolicyState
from koordcore.values.invalid import InvalidInput

from koordctl.access.files import documents_of
from koordctl.access.log import LogTrouble, open_log, wait_for
from koordctl.access.times import resolve_window
from koordctl.node.lines import formula_line, mid_line
from koordctl.render.output import Format, console, fail, progress, show_document, show_start, show_table
from koordctl.render.units import cores, gibibytes
from koordctl.replay import nodes as node_runs
from koordctl.replay.admission import read_gates, read_profiles, show_admission, tried_of
from koordctl.replay.manager_rerun import ManagerComparison, Question, compare, read_chosen
from koordctl.replay.recommendations import show_recommendations

_MOST_NAMED = 20
_TITLES: Final = {
    "nodeSLO": "NodeSLO",
    "measuring": "metric collection",
    "ratios": "cpu normalization or amplification",
    "devices": "devices",
    "health": "health",
}
Show = Callable[[node_runs.Lent], str]
_FIGURES: tuple[tuple[str, Show], ...] = (
    ("batch cpu, cores", lambda lent: cores(lent.batch_cpu_milli)),
    ("batch memory", lambda lent: gibibytes(lent.batch_memory_bytes)),
    ("mid cpu, cores", lambda lent: cores(lent.mid_cpu_milli)),
    ("mid memory", lambda lent: gibibytes(lent.mid_memory_bytes)),
    ("nodes that lend", lambda lent: str(lent.nodes)),
)


def profile_remarks(documents: Iterable[object]) -> tuple[str, ...]:
    """Each warning begins with the name of its profile. `documents`: accepted by `replay.admission.read_profiles`."""
    return tuple(
        f"{shape_manifest(document).object.metadata.name}: {sentence}"
        for document in documents
        for sentence in document_warnings(document)
    )


def config_remarks(document: object, names: ConfigNames) -> tuple[str, ...]:
    """One warning tells if the manager does not read a ConfigMap of this name.

    Args:
        document: A ConfigMap that `koordctl.replay.manager_rerun.read_chosen` accepts.
        names: Namespace and name of the ConfigMap that the manager reads.
    """
    found = shape_manifest(document).object
    assert isinstance(found, ConfigMap), "nothing else is tried"
    given, read = f"{found.metadata.namespace}/{found.metadata.name}", f"{names.slo_namespace}/{names.slo_name}"
    other = (
        f"metadata: the manager reads the ConfigMap {read} only, this is {given}; it is tried as if it were that one"
    )
    return (*([other] if given != read else []), *document_warnings(document))


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerFlags:
    """The command-line flags with which the recorded manager ran."""

    controllers: str  # Text of `--controllers`, for example `*,-nodeslo`
    plugins: str  # Text of `--noderesource-plugins`
    gates: str  # Text of `--feature-gates`, for example `EnableSyncGPUSharedResource=true`
    config_namespace: str  # Namespace of the ConfigMap `slo-controller-config`
    slo_config_name: str  # Name of that ConfigMap

    @property
    def given_gates(self) -> dict[str, bool]:
        """Raises InvalidInput for a gate that the manager does not know."""
        return read_gates(self.gates)

    @property
    def recorded_flags(self) -> RecordedFlags:
        """The controllers, plugins and gates that ran. Raises as `given_gates`."""
        gates = parse_feature_gates([self.gates], ManagerSettings.known_gates)
        return RecordedFlags(
            controllers=enabled_of(CONTROLLERS, _words(self.controllers)),
            plugins=enabled_of(PLUGINS, _words(self.plugins)),
            sync_shared_gpus=gates.enabled("EnableSyncGPUSharedResource"),
        )

    @property
    def names(self) -> ConfigNames:
        """The ConfigMap from which the recorded manager read its configuration."""
        return ConfigNames(slo_namespace=self.config_namespace, slo_name=self.slo_config_name)


def rerun_manager(
    config: Path | None,
    profiles: Path | None,
    settings: str | None,
    begin: str | None,
    to: str | None,
    output: Format,
    flags: ManagerFlags,
) -> None:
    """Decide a window of the log again with the manager's rules and print what differs from the recording.

    If the configuration or window is not valid, end the command. Exit status 1 if even the recorded settings do not
    give the recorded decisions.

    Args:
        config: File with the ConfigMap to try; None for the recorded one.
        profiles: File with the ClusterColocationProfiles to try; None for the recorded ones.
        settings: Settings of the recommender, for example `targetCPUPercentile=0.95`; None for the recorded ones.
        begin: A position or RFC 3339 time; None for the beginning of the log.
        to: A position or RFC 3339 time; None for the newest event.
    """
    remarks: list[str] = []
    chosen = _chosen(config, flags.names, remarks)
    try:
        recorded_flags, admitting = flags.recorded_flags, tried_of(_profiles(profiles, remarks), flags.given_gates)
    except InvalidInput as error:
        fail(f"--feature-gates: {error.sentence()}", status=2)
    try:
        tried = read_settings(settings) if settings is not None else None
    except InvalidInput as error:
        fail(f"--recommender-settings: {error.sentence()}", status=2)
    asked = Question(
        begin=0,
        end=0,
        chosen=chosen,
        settings=tried,
        names=flags.names,
        flags=recorded_flags,
        admitting=admitting,
        remarks=tuple(remarks),
    )
    comparison = wait_for(_compare(asked, begin, to))
    if output is Format.TABLE:
        _show(comparison)
    else:
        show_document(comparison.document(), output)
    if chosen is None and not comparison.nodes.tally.explained:
        fail(
            "the recorded configuration does not give the recorded decisions about nodes; if the manager ran with"
            " --controllers, --noderesource-plugins, --feature-gates, --config-namespace or --slo-config-name, repeat"
            " these flags"
        )
    if tried is None and not comparison.recommendations.tally.explained:
        fail("the recorded settings do not give the recorded recommendations")
    if admitting is None and comparison.admission.unexplained:
        fail(
            "the recorded profiles do not give the recorded decisions of admission; if the manager ran with"
            " --feature-gates, repeat this flag"
        )


def _words(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _chosen(config: Path | None, names: ConfigNames, remarks: list[str]) -> dict[str, str] | None:
    """The data of the ConfigMap to try. Its warnings are added to `remarks`."""
    if config is None:
        return None
    documents = documents_of(config, wanted="the ConfigMap slo-controller-config")
    with _naming(config):
        chosen = read_chosen(documents)
    remarks += (f"{config}: {sentence}" for sentence in config_remarks(documents[0], names))
    return chosen


def _profiles(file: Path | None, remarks: list[str]) -> dict[str, ColocationProfile] | None:
    """The ClusterColocationProfiles to try. Their warnings are added to `remarks`."""
    if file is None:
        return None
    documents = documents_of(file)
    with _naming(file):
        found = read_profiles(documents)
    remarks += (f"{file}: {sentence}" for sentence in profile_remarks(documents))
    return found


@contextmanager
def _naming(file: Path) -> Generator[None]:
    """Turn an invalid value inside the block into an error message that names the file, and end the command."""
    try:
        yield
    except InvalidManifest as refused:
        fail(f"{file}: {'; '.join(violation.sentence() for violation in refused.violations)}")
    except InvalidInput as error:
        fail(f"{file}: {error.sentence()}")


async def _compare(question: Question, begin: str | None, to: str | None) -> ManagerComparison:
    async with open_log() as log:
        start, end = await resolve_window(log, begin, to)
        asked = replace(question, begin=start, end=end)
        bus = log.bus
        try:
            with progress("re-run", end) as see:
                return await compare(bus.events, bus.observations, bus.snapshots, asked, see, bus.explanations)
        except LogTrouble as error:
            fail(str(error))


def _show(found: ManagerComparison) -> None:
    tally = found.nodes.tally
    console.print(
        f"positions {found.asked.begin:,} to {found.asked.end:,}: {tally.recorded:,} decisions about nodes recorded,"
        f" {tally.rerun:,} in the re-run, {tally.same:,} with the recorded result,"
        f" {found.reports:,} usage reports still retained"
    )
    show_start(found.started)
    if tally.not_retained:
        console.print(f"{tally.not_retained:,} decisions were not repeated: their usage report is no longer retained")
    for line in (*found.notes, *(f"warning: {sentence}" for sentence in found.warnings)):
        console.print(line)
    _show_nodes(found.nodes)
    show_recommendations(found.recommendations)
    show_admission(found.admission)


def _show_nodes(found: node_runs.NodeComparison) -> None:
    show_table(["", "recorded", "re-run"], [_figures(title, show, found) for title, show in _FIGURES])
    lending = [fate for fate in found.fates if node_runs.lends_otherwise(fate)]
    by_part = {part: [node_runs.differences(fate, part) for fate in found.fates] for part in node_runs.PARTS}
    show_table(
        ["what differs", "nodes"],
        [
            ["batch or mid resources", len(lending)],
            *([_TITLES[part], sum(map(bool, nodes))] for part, nodes in by_part.items()),
        ],
    )
    if found.mass_abnormal[0] != found.mass_abnormal[1]:
        than = "more nodes look abnormal than may be lowered"
        console.print(f"{than}: {_yes(found.mass_abnormal[0])} recorded, {_yes(found.mass_abnormal[1])} in the re-run")
    if lending:
        show_table(
            ["node", "", "batch cpu", "batch memory", "mid cpu", "mid memory", "reason"],
            [row for fate in lending[:_MOST_NAMED] for row in _amounts(fate)],
        )
        console.print(f"{lending[0].node}, re-run:")
        for line in _terms(lending[0].rerun):
            console.print(f"  {line}")
    if fields := [row for nodes in by_part.values() for row in _fields(nodes)]:
        show_table(["field", "recorded", "re-run", "nodes"], fields)
    if len(lending) > _MOST_NAMED:
        console.print(f"and {len(lending) - _MOST_NAMED:,} more: -o json")


def _figures(title: str, show: Show, found: node_runs.NodeComparison) -> list[str]:
    return [title, show(found.before), show(found.after)]


def _amounts(fate: NodeFate) -> Iterator[list[str]]:
    for name, when, policy in ((fate.node, "recorded", fate.recorded), ("", "re-run", fate.rerun)):
        state = policy or NodePolicyState(seq=0)
        yield [
            name,
            when,
            cores(state.batch_cpu_milli),
            gibibytes(state.batch_memory_bytes),
            cores(state.mid_cpu_milli),
            gibibytes(state.mid_memory_bytes),
            state.reason or "-",
        ]


def _terms(policy: NodePolicyState | None) -> Iterator[str]:
    if policy is not None:
        yield from (formula_line(resource, terms) for resource, terms in sorted(policy.terms.items()))
        yield from (mid_line(resource, terms) for resource, terms in sorted(policy.mid_terms.items()))


def _fields(differences: Iterable[Iterable[node_runs.Difference]]) -> list[list[object]]:
    """Every field that differs, with its recorded value, its re-run value and the number of nodes."""
    counted: dict[tuple[str, str, str], int] = {}
    for of_node in differences:
        for one in of_node:
            key = (one.path, _text(one.recorded), _text(one.rerun))
            counted[key] = counted.get(key, 0) + 1
    return [[*key, nodes] for key, nodes in sorted(counted.items())]


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _text(value: object) -> str:
    return "-" if value is None else json.dumps(value)
