"""What a run of `koord replay --rerun-manager` compares of admission."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from koord_manager.domain.admission.context.facts import PROFILES
from koord_manager.domain.admission.context.profiles import ColocationProfile, read_profile
from koord_manager.domain.what_if.admission import AdmissionDecisions, AdmissionFate, AdmissionTried
from koord_manager.domain.what_if.admission_outcome import Outcome
from koord_manager.domain.what_if.tally import Tally
from koord_manager.settings import ManagerSettings
from koordcore.events.envelope import StoredEvent
from koordcore.ports.observations import ObservationLog
from koordcore.protocol.manifests import CustomObject, InvalidManifest, check_manifest, shape_manifest
from koordcore.service.configuration.gates import parse_feature_gates
from koordcore.values.invalid import InvalidInput

_GROUPS = frozenset(("AllAlpha", "AllBeta"))
_NOT_OF_ADMISSION = "EnableSyncGPUSharedResource"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionComparison:
    """What was recorded of admission and what would have been.

    tally         decisions in the window
    not_judged    pods of the API server that the recorded profiles would have changed or refused, and nobody did
    fates         of the objects that would be admitted otherwise
    unexplained   decisions that come out otherwise with what was in force
    """

    tally: Tally
    not_judged: int
    fates: list[AdmissionFate]
    unexplained: list[AdmissionFate]

    @property
    def changed(self) -> list[AdmissionFate]:
        """Objects that are let in and would be other ones."""
        return [fate for fate in self.fates if fate.recorded.allowed and fate.anew.allowed]

    @property
    def refused(self) -> list[AdmissionFate]:
        """Objects that were let in and would be refused."""
        return [fate for fate in self.fates if fate.recorded.allowed and not fate.anew.allowed]

    @property
    def let_in(self) -> list[AdmissionFate]:
        """Objects that were refused and would be let in."""
        return [fate for fate in self.fates if not fate.recorded.allowed and fate.anew.allowed]

    @property
    def refused_otherwise(self) -> list[AdmissionFate]:
        """Objects that are refused by other rules."""
        return [fate for fate in self.fates if not fate.recorded.allowed and not fate.anew.allowed]

    def document(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "decisions": {
                "recorded": self.tally.recorded,
                "rerun": self.tally.anew,
                "same": self.tally.same,
                "notKept": self.tally.not_kept,
            },
            "notJudged": self.not_judged,
            "changed": list(map(_fate, self.changed)),
            "refusedInsteadOfLetIn": list(map(_fate, self.refused)),
            "letInInsteadOfRefused": list(map(_fate, self.let_in)),
            "refusedOtherwise": list(map(_fate, self.refused_otherwise)),
            "unexplained": list(map(_fate, self.unexplained)),
        }


def compare_admission(decided: AdmissionDecisions) -> AdmissionComparison:
    """What a run that has ended says of admission."""
    return AdmissionComparison(
        tally=decided.tally,
        not_judged=decided.not_judged,
        fates=decided.fates,
        unexplained=decided.unexplained,
    )


def read_profiles(documents: list[object]) -> dict[str, ColocationProfile]:
    """The ClusterColocationProfiles of a file by name; a file without any stands for none.

    raises    InvalidInput, InvalidManifest: with the document where there are several, the field, the rule and the
              value of what cannot be taken
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
            raise InvalidInput("a name that no other profile of the file has", profile.name, "metadata.name")
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
    """The gates that a text names, as the manager reads them.

    raises    InvalidInput for a gate that the manager does not know
    """
    values = parse_feature_gates([text], ManagerSettings.known_gates).values
    named = {pair.partition("=")[0].strip() for pair in text.split(",")}
    return {name: is_on for name, is_on in values.items() if name in named or named & _GROUPS}


def tried_of(profiles: Mapping[str, ColocationProfile] | None, gates: Mapping[str, bool]) -> AdmissionTried | None:
    """What is tried; None: nothing is. Gates that admission does not ask say what the manager was, and try nothing."""
    tried = {gate: is_on for gate, is_on in gates.items() if gate != _NOT_OF_ADMISSION}
    return AdmissionTried(profiles=profiles, gates=tried) if profiles is not None or tried else None


async def kept_verdicts(stream: ObservationLog) -> tuple[list[StoredEvent], str]:
    """The verdicts on admission that are still kept, and since when all are: RFC 3339, "" when none went."""
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
    """`pods default/web`."""
    return f"{fate.resource} {fate.namespace}/{fate.name}" if fate.namespace else f"{fate.resource} {fate.name}"


def differing_fields(fates: Iterable[AdmissionFate]) -> dict[tuple[str, str, str], int]:
    """Each field with its two values as texts, and in how many objects it would be so."""
    counted: dict[tuple[str, str, str], int] = {}
    for fate in fates:
        for change in fate.changes:
            key = (change.field, _text(change.recorded), _text(change.anew))
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
        "door": fate.door,
        "at": fate.at,
        "basedOn": fate.position,
        "recorded": _outcome(fate.recorded),
        "rerun": _outcome(fate.anew),
        "changes": [
            {"field": change.field, "recorded": change.recorded, "rerun": change.anew} for change in fate.changes
        ],
    }


def _outcome(said: Outcome) -> dict[str, Any]:
    return {
        "allowed": said.allowed,
        "steps": list(said.steps),
        "rules": list(said.rules),
        "fields": list(said.fields),
        "message": said.message,
    }
