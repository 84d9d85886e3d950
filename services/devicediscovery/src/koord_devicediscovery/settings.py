"""Settings of device discovery: flags > environment > configuration file > defaults.

They have the names that Koordinator's koord-device-daemon uses.

Source: runtime spec, 8.1.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

import msgspec
from koordcore.service.flags import InvalidFlag, parse_flags
from koordcore.service.settings import InvalidSettings, Seconds, ServiceSettings
from koordcore.values.invalid import InvalidInput
from koordcore.values.yaml_text import YamlError, load_yaml
from pydantic import BeforeValidator, Field

_TRUE: Final = frozenset(("1", "t", "T", "true", "True", "TRUE"))
_FALSE: Final = frozenset(("0", "f", "F", "false", "False", "FALSE"))


def _boolean(value: object) -> object:
    match value:
        case str() if value in _TRUE:
            return True
        case str() if value in _FALSE:
            return False
        case str():
            raise InvalidInput("one of 1 t T true True TRUE 0 f F false False FALSE", value)
        case _:
            return value


Boolean = Annotated[bool, BeforeValidator(_boolean)]


class DiscoverySettings(ServiceSettings):
    """Settings of device discovery: flags, environment and configuration file. It does not use the log."""

    service: ClassVar[str] = "devicediscovery"
    about: ClassVar[str] = (
        "Finds Huawei, Cambricon, Kunlun and MetaX accelerators with the tools of their vendors and describes them in "
        "a file, from which the agent makes the Device object. NVIDIA GPUs and RDMA cards are found by the agent."
    )

    oneshot: Boolean = Field(False, description="Look once, write the file, leave it and exit.")
    no_timestamp: Boolean = Field(False, description="Accepted for compatibility; the file has no timestamp.")
    sleep_interval: Seconds = Field(900.0, ge=0, description="Time between two looks.")
    prints_output_file: str = Field(
        "/var/run/koordlet/xpu-device-infos/ic-device", description="File to write; empty: standard output."
    )
    config_file: str = Field("", description="YAML or JSON file with `version: v1` and `flags: {kdd: {...}}`.")
    v: int = Field(1, ge=0, description="Verbosity of the log; from 4 on, every look is logged.")
    host_root: Path = Field(
        Path("/hostfs"), description="Root file system of the host, in which the tools run; absent: this one."
    )
    sys_dir: Path = Field(Path("/sys"), description="Folder of sysfs.")
    dev_dir: Path = Field(Path("/dev"), description="Folder of device files.")

    @property
    def output(self) -> Path | None:
        """None for standard output."""
        return Path(self.prints_output_file) if self.prints_output_file else None

    @classmethod
    def load(cls, words: Sequence[str], environ: Mapping[str, str]) -> Self:
        """Merge the settings of Koordinator's koord-device-daemon with those of every service, and validate them.

        A flag beats a variable `KOORD_DEVICEDISCOVERY_...`, this beats one of Koordinator, this the configuration file.
        Koordinator's variables begin with `KDD_`. `PRINTS_OUTPUT_FILE` and `CONFIG_FILE` count, too, if they are not
        given with `KDD_`.

        Raises:
            InvalidSettings: A setting is invalid, or the configuration file is missing or has another version.
            HelpRequested: The command line asks for help.
        """
        try:
            flags = parse_flags(cls.flag_specs(), words)
        except InvalidFlag as error:
            raise InvalidSettings([str(error)]) from error
        from_environ = _of_environment(environ)
        path = flags.get("config_file", [from_environ.get("config_file", "")])[-1]
        prefix = cls.env_prefix()
        given = {**_of_file(path), **from_environ}
        return super().load(words, {**{prefix + name.upper(): text for name, text in given.items()}, **environ})


def _of_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Setting -> text. An empty boolean counts as false, an empty text as a text, and an empty duration as not set."""
    given: dict[str, str] = {}
    for name in ("oneshot", "no_timestamp"):
        text = environ.get(f"KDD_{name.upper()}")
        if text is not None:
            given[name] = text or "false"
    if environ.get("KDD_SLEEP_INTERVAL"):
        given["sleep_interval"] = environ["KDD_SLEEP_INTERVAL"]
    for name in ("prints_output_file", "config_file"):
        text = environ.get(f"KDD_{name.upper()}", environ.get(name.upper()))
        if text is not None:
            given[name] = text
    return given


class _Options(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """`flags.kdd` of the configuration file; a number instead of a duration is refused later, with its setting."""

    oneshot: bool | str | None = None
    sleep_interval: str | int | float | None = None
    prints_output_file: str | None = None


class _Flags(msgspec.Struct, forbid_unknown_fields=True):
    kdd: _Options | None = None


class _ConfigurationFile(msgspec.Struct, forbid_unknown_fields=True):
    version: Literal["v1", ""] | None = None
    flags: _Flags | None = None


def _of_file(path: str) -> dict[str, str]:
    """Setting -> text; empty if there is no file."""
    if not path:
        return {}
    try:
        document = load_yaml(Path(path).read_text())
        found = msgspec.convert({} if document is None else document, _ConfigurationFile)
    except (OSError, UnicodeDecodeError, YamlError, InvalidInput) as error:
        raise InvalidSettings([f"config_file: {path} must be a readable YAML or JSON file: {error}"]) from error
    except msgspec.ValidationError as error:
        raise InvalidSettings([f"config_file {path}: {error}"]) from error
    options = found.flags and found.flags.kdd
    given = {} if options is None else msgspec.structs.asdict(options)
    return {name: str(value) for name, value in given.items() if value is not None}
