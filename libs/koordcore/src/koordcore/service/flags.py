"""Parse command lines in Go's style (`-x v`, `--x v`, `-x=v`, `--bool`, `--bool=false`), and feature gates.

An unknown flag or gate is an error, so that a misspelled one is not ignored. The result is texts by flag.
`koordcore.service.settings` defines the flags and parses the texts. Gates are `--feature-gates=A=true,B=false` and the
groups `AllAlpha` and `AllBeta`; each service declares its gates.

Source: protocol spec, 11.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koordcore.values.invalid import InvalidInput


class InvalidFlag(ValueError):
    """The command line is invalid. The message names the flag and the accepted values."""


class HelpRequested(Exception):
    """The command line contains `-h` or `--help`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagSpec:
    names: tuple[str, ...]  # Names without dashes; help shows the first one
    field: str  # Field of the settings that the flag sets
    # Whether it is a boolean flag, which takes no following word: `--x` is `true`, `--x=false` is `false`.
    is_bool: bool
    help: str  # One sentence about the flag, as `--help` shows it
    default: str  # Default as help shows it; empty: help shows none
    no_effect: str = ""  # Why the flag is accepted without effect; empty: it has an effect


def without_effect(names: str, why: str, *, is_bool: bool = False) -> list[FlagSpec]:
    """Return flags that are accepted without effect, so that the command line of another program starts this one.
    `names`: names without dashes, separated by white space. `is_bool`: whether they are boolean flags.
    """
    about = f"Accepted without effect: {why}."
    return [
        FlagSpec(names=(name,), field=name, is_bool=is_bool, help=about, default="", no_effect=why)
        for name in names.split()
    ]


def klog_flags(why: str) -> list[FlagSpec]:
    """Return the flags of klog, the logger of Kubernetes, without `--v`: they are accepted without effect."""
    texts = "log-dir log-file log-file-max-size log-backtrace-at stderrthreshold"
    switches = "logtostderr alsologtostderr add-dir-header one-output skip-headers skip-log-headers"
    return [
        *without_effect("vmodule", "see --v, which holds for all modules"),
        *without_effect(texts, why),
        *without_effect(switches, why, is_bool=True),
    ]


def parse_flags(specs: Sequence[FlagSpec], words: Sequence[str]) -> dict[str, list[str]]:
    """Parse a command line. Return field of the settings -> values of its flags as text, in order. A field whose flags
    are not on the command line is absent. `_` in a name counts as `-`, as in components of Kubernetes.

    Raises:
        InvalidFlag: A flag is unknown, a flag has no value, or a word is not a flag.
        HelpRequested: The command line contains `-h` or `--help`.
    """
    by_name = {name.replace("_", "-"): spec for spec in specs for name in spec.names}
    given: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word in ("-", "--"):
            raise InvalidFlag(f"unexpected argument {word!r}: only flags are accepted")
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        spec = by_name.get(name.replace("_", "-"))
        if spec is None:
            if name in ("h", "help"):
                raise HelpRequested
            raise InvalidFlag(f"unknown flag --{name}: see --help for those that exist")
        if not equals:
            if spec.is_bool:
                value = "true"
            elif (following := next(rest, None)) is None:
                raise InvalidFlag(f"flag --{name} needs a value: --{name}=<value>")
            else:
                value = following
        given.setdefault(spec.field, []).append(value)
    return given


def render_help(program: str, about: str, specs: Sequence[FlagSpec]) -> str:
    """Return the text of `--help`: the paragraph `about`, then every flag with its sentence and default."""
    lines = [f"Usage: {program} [flags]", "", *textwrap.wrap(about, 100), "", "Flags:"]
    for spec in specs:
        names = ", ".join(("-" if len(name) == 1 else "--") + name for name in spec.names)
        lines.append(f"  {names}" + ("" if spec.is_bool else " <value>"))
        shown = f" (default {spec.default})" if spec.default else ""
        lines.extend(textwrap.wrap(spec.help + shown, 100, initial_indent=" " * 8, subsequent_indent=" " * 8))
    return "\n".join(lines) + "\n"


class Stage(StrEnum):
    """Maturity of a feature: ALPHA, BETA or GA. The gate groups `AllAlpha` and `AllBeta` select features by it."""

    ALPHA = "alpha"
    BETA = "beta"
    GA = "ga"


@dataclass(frozen=True, slots=True)
class Gate:
    name: str
    default: bool  # Value if neither the gate nor its group is set
    stage: Stage  # Maturity. A gate of stage GA can only be set to its default.
    no_effect: str = ""  # Why the gate is accepted without effect; empty: it has an effect


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
    """Return the value of every feature gate: the explicit value, else that of its group, else its default. `texts`:
    values of the flag in order (later ones override), or gate -> value from a settings file. `known`: gates of the
    service, without the groups.

    Raises:
        InvalidInput: A gate is unknown, a GA gate gets another value than its default, or a value is not a boolean.

    Source: protocol spec, 11.5: an explicit value wins over its group wherever it stands in the text.
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
