"""`koord replay --rerun-manager` about admission: recorded decisions beside those under other profiles or gates."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from koord_manager.domain.admission.context.facts import PROFILES
from koord_manager.domain.admission.context.profiles import ColocationProfile, read_profile
from koord_manager.domain.what_if.admission import AdmissionDecisions, AdmissionFate, AdmissionTried
from koord_manager.domain.what_if.admission_outcome import Outcome
from koord_manager.domain.what_if.recording import Tally
from koord_manager.settings import ManagerSettings
from koordcore.events.envelope import StoredEvent
from koordcore.ports.eventlog import ObservationLog
from koordcore.protocol.manifests import CustomObject, InvalidManifest, check_manifest, shape_manifest
from koordcore.service.flags import parse_feature_gates
from koordcore.values.invalid import InvalidInput

from koordctl.render.output import console, show_table
from koordctl.replay.nodes import tally_document

_GROUPS = frozenset(("AllAlpha", "AllBeta"))
_NOT_OF_ADMISSION = "EnableSyncGPUSharedResource"
_MOST_NAMED = 20
_MOST_LETTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionComparison:
    tally: Tally  # Numbers of decisions in the window
    # Number of pods that the recorded profiles would have changed or denied, without a recorded decision.
    not_reviewed: int
    fates: list[AdmissionFate]  # Objects with another decision in the re-run
    unexplained: list[AdmissionFate]  # Decisions that differ although the re-run tried the recorded profiles and gates

    @property
    def changed(self) -> list[AdmissionFate]:
        """Objects that both runs admit, with different content."""
        return [fate for fate in self.fates if fate.recorded.allowed and fate.rerun.allowed]

    @property
    def denied(self) -> list[AdmissionFate]:
        """Objects that were admitted and that the re-run denies."""
        return [fate for fate in self.fates if fate.recorded.allowed and not fate.rerun.allowed]

    @property
    def admitted(self) -> list[AdmissionFate]:
        """Objects that were denied and that the re-run admits."""
        return [fate for fate in self.fates if not fate.recorded.allowed and fate.rerun.allowed]

    @property
    def denied_by_other_rules(self) -> list[AdmissionFate]:
        """Objects that both runs deny, because of different rules."""
        return [fate for fate in self.fates if not fate.recorded.allowed and not fate.rerun.allowed]

    def document(self) -> dict[str, Any]:
        return {
            "decisions": tally_document(self.tally),
            "notReviewed": self.not_reviewed,
            "changed": list(map(_fate, self.changed)),
            "deniedInsteadOfAdmitted": list(map(_fate, self.denied)),
            "admittedInsteadOfDenied": list(map(_fate, self.admitted)),
            "deniedByOtherRules": list(map(_fate, self.denied_by_other_rules)),
            "unexplained": list(map(_fate, self.unexplained)),
        }


def compare_admission(decided: AdmissionDecisions) -> AdmissionComparison:
    return AdmissionComparison(
        tally=decided.tally,
        not_reviewed=decided.not_reviewed,
        fates=decided.fates,
        unexplained=decided.unexplained,
    )


def read_profiles(documents: list[object]) -> dict[str, ColocationProfile]:
    """The ClusterColocationProfiles of a file by name; empty for a file without documents.

    Raises:
        InvalidInput, InvalidManifest: A document is not valid. The error names document, field, rule and value.
    """
    found: dict[str, ColocationProfile] = {}
    for index, document in enumerate(documents):
        place = f"documents[{index}]" if len(documents) > 1 else ""
        try:
            profile = _read(document)
        except InvalidManifest as refused:
            raise InvalidManifest([each.at(place) if place else each for each in refused.violations]) from refused
        except InvalidInput as error:
            raise (error.at(place) if place else error) from error
        if profile.name in found:
            raise InvalidInput("a unique name in this file", profile.name, "metadata.name")
        found[profile.name] = profile
    return found


def _read(document: object) -> ColocationProfile:
    manifest = shape_manifest(document)
    if not isinstance(manifest.object, CustomObject) or manifest.object.resource.plural != PROFILES:
        raise InvalidInput("ClusterColocationProfile", manifest.kind, "kind")
    check_manifest(manifest)
    profile = read_profile(manifest.object.document)
    for fault in (profile.probability, profile.patch):
        if isinstance(fault, InvalidInput):
            raise fault.at(f"ClusterColocationProfile[{profile.name}]")
    return profile


def read_gates(text: str) -> dict[str, bool]:
    """The feature gates that a text such as `A=true,B=false` names, read as the manager reads them.

    Raises:
        InvalidInput: The manager does not know a gate.
    """
    values = parse_feature_gates([text], ManagerSettings.known_gates).values
    named = {pair.partition("=")[0].strip() for pair in text.split(",")}
    return {name: is_on for name, is_on in values.items() if name in named or named & _GROUPS}


def tried_of(profiles: Mapping[str, ColocationProfile] | None, gates: Mapping[str, bool]) -> AdmissionTried | None:
    """What a re-run of admission tries.

    None: the user has given no profiles, and no gate that concerns admission. Other gates only describe the recorded
    manager.
    """
    tried = {gate: is_on for gate, is_on in gates.items() if gate != _NOT_OF_ADMISSION}
    return AdmissionTried(profiles=profiles, gates=tried) if profiles is not None or tried else None


async def retained_decisions(stream: ObservationLog) -> tuple[list[StoredEvent], str]:
    """Return the decisions of admission that the stream still has, and the time since which it is complete.

    The time is RFC 3339. It is empty if the stream is complete from the beginning.
    """
    head = await stream.head()
    found: list[StoredEvent] = []
    since = ""
    if head.last_seq == 0 or head.first_seq > head.last_seq:
        return found, since
    async for batch in stream.follow(0):
        if not since and head.first_seq > 1:
            since = batch[0].occurred_at
        found += (stored for stored in batch if stored.ref.kind == "admission")
        if batch[-1].seq >= head.last_seq:
            break
    return found, since


def title(fate: AdmissionFate) -> str:
    """Plural kind, namespace and name of the object, for example `pods default/web`."""
    return f"{fate.resource} {fate.namespace}/{fate.name}" if fate.namespace else f"{fate.resource} {fate.name}"


def differing_fields(fates: Iterable[AdmissionFate]) -> dict[tuple[str, str, str], int]:
    """(field, recorded value, re-run value) -> number of objects in which the field differs so."""
    counted: dict[tuple[str, str, str], int] = {}
    for fate in fates:
        for change in fate.changes:
            key = (change.field, _text(change.recorded), _text(change.rerun))
            counted[key] = counted.get(key, 0) + 1
    return counted


def _text(value: Any) -> str:
    return "-" if value is None else json.dumps(value)


def _fate(fate: AdmissionFate) -> dict[str, Any]:
    return {
        "resource": fate.resource,
        "namespace": fate.namespace,
        "name": fate.name,
        "operation": fate.operation,
        "source": fate.source,
        "at": fate.at,
        "basedOn": fate.position,
        "recorded": _outcome(fate.recorded),
        "rerun": _outcome(fate.rerun),
        "changes": [
            {"field": change.field, "recorded": change.recorded, "rerun": change.rerun} for change in fate.changes
        ],
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "allowed": outcome.allowed,
        "steps": list(outcome.steps),
        "rules": list(outcome.rules),
        "fields": list(outcome.fields),
        "message": outcome.message,
    }


def show_admission(found: AdmissionComparison) -> None:
    """Nothing is printed if the log contains no decision of admission."""
    tally = found.tally
    if not tally.recorded and not found.not_reviewed:
        return
    console.print(
        f"{tally.recorded:,} decisions of admission recorded; under the recorded profiles and gates,"
        f" {tally.rerun:,} were repeated and {tally.same:,} gave the recorded result"
    )
    if tally.not_retained:
        console.print(f"{tally.not_retained:,} of them were not repeated: their input is no longer retained")
    if found.not_reviewed:
        console.print(
            f"{found.not_reviewed:,} pods lack the changes of the recorded profiles: no webhook was called, or"
            " the decision is no longer retained"
        )
    if found.unexplained:
        show_table(["with the recorded settings", "", "decision", "reason"], _rows(found.unexplained))
    if not found.fates:
        return
    show_table(
        ["what differs", "objects"],
        [
            ["changed differently", len(found.changed)],
            ["denied instead of admitted", len(found.denied)],
            ["admitted instead of denied", len(found.admitted)],
            ["denied by other rules", len(found.denied_by_other_rules)],
        ],
    )
    denied = [*found.denied, *found.admitted, *found.denied_by_other_rules]
    if denied:
        show_table(["object", "", "decision", "reason"], _rows(denied))
    if found.changed:
        show_table(["object", "", "decision", "reason"], _rows(found.changed))
        fields = sorted(differing_fields(found.changed).items(), key=lambda one: (-one[1], one[0]))
        rows = [[field, _cut(before), _cut(after), count] for (field, before, after), count in fields[:_MOST_NAMED]]
        show_table(["field", "recorded", "re-run", "objects"], rows)
    if max(len(denied), len(found.changed)) > _MOST_NAMED:
        console.print("more: -o json")


def _rows(fates: list[AdmissionFate]) -> Iterator[list[str]]:
    for fate in fates[:_MOST_NAMED]:
        yield [title(fate), "recorded", *_decision_and_reason(fate.recorded)]
        yield ["", "re-run", *_decision_and_reason(fate.rerun)]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


def _decision_and_reason(outcome: Outcome) -> tuple[str, str]:
    if not outcome.allowed:
        return "denied", outcome.message or ", ".join(outcome.rules)
    return ("changed", ", ".join(outcome.steps)) if outcome.steps else ("admitted", "-")
