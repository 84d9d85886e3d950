"""Feature gates: `--feature-gates=A=true,B=false` and the groups `AllAlpha` and `AllBeta`.

Each service declares its gates. An unknown gate is an error, so that a misspelled gate is not ignored.

Source:
    protocol spec, 11.5
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koordcore.values.invalid import InvalidInput


class Stage(StrEnum):
    """Maturity of a feature: ALPHA, BETA or GA. The gate groups `AllAlpha` and `AllBeta` select features by it."""

    ALPHA = "alpha"
    BETA = "beta"
    GA = "ga"


@dataclass(frozen=True, slots=True)
class Gate:
    """Definition of one feature gate.

    Attributes:
        default: Value if neither the gate nor its group is set.
        stage: Maturity. A gate of stage GA can only be set to its default.
    """

    name: str
    default: bool
    stage: Stage


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """Value (on or off) of every feature gate of one service."""

    values: Mapping[str, bool]

    def enabled(self, name: str) -> bool:
        """Return whether the feature gate with this name is on.

        Raises:
            KeyError: The service did not declare the gate.
        """
        return self.values[name]

    def __str__(self) -> str:
        return ",".join(f"{name}={str(on).lower()}" for name, on in sorted(self.values.items()))


_GROUPS: Final = {"AllAlpha": Stage.ALPHA, "AllBeta": Stage.BETA}
# What Go's strconv.ParseBool takes, and nothing else.
_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def parse_feature_gates(texts: Sequence[str] | Mapping[str, bool], known: Sequence[Gate]) -> FeatureGates:
    """Return the value of every feature gate: the explicit value, else that of its group, else its default.

    Args:
        texts: Values of the flag in order (later ones override), or gate -> value from a settings file.
        known: Gates of the service, without the groups.

    Raises:
        InvalidInput: A gate is unknown, a GA gate gets another value than its default, or a value is not a boolean.

    Source:
        protocol spec, 11.5: an explicit value wins over its group wherever it stands in the text
    """
    by_name = {gate.name: gate for gate in known}
    given = dict(texts) if isinstance(texts, Mapping) else _read(texts)
    for name, on in given.items():
        if name in _GROUPS:
            continue
        gate = by_name.get(name)
        if gate is None:
            raise InvalidInput(f"a known feature gate ({', '.join(sorted(by_name)) or 'there is none'})", name)
        if gate.stage is Stage.GA and on != gate.default:
            raise InvalidInput(
                f"left at {str(gate.default).lower()}: the feature is locked", f"{name}={str(on).lower()}"
            )
    by_stage = {_GROUPS[name]: on for name, on in given.items() if name in _GROUPS}
    return FeatureGates({g.name: given.get(g.name, by_stage.get(g.stage, g.default)) for g in known})


def _read(texts: Sequence[str]) -> dict[str, bool]:
    given: dict[str, bool] = {}
    for pair in ",".join(texts).split(","):
        if not pair.strip():
            continue
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or value not in _TRUE | _FALSE:
            raise InvalidInput("<gate>=true or <gate>=false", pair.strip())
        given[name] = value in _TRUE
    return given
