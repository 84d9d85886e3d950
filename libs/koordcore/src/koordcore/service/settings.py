"""Settings of a service: defaults < file (YAML) < environment (`KOORD_<SERVICE>_<FIELD>`) < flags.

A service extends `ServiceSettings` with its own fields; `koordcore.service.run` loads them. pydantic-settings is not
used: it cannot parse Go-style flags, its errors do not name the source of a value, and it costs 8 MiB and 0.1 s per
process (measured).

Kubernetes puts `<SERVICE>_PORT` and `<SERVICE>_SERVICE_HOST` into the environment of every pod: unknown variables are
therefore ignored, and no field may be called `port` or begin with `service_`.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, ClassVar, Final, Literal, Self, TypeVar, Union, cast, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic.fields import FieldInfo

from koordcore.service.clock import ScaledClock, SystemClock, parse_clock
from koordcore.service.flags import FeatureGates, FlagSpec, Gate, InvalidFlag, parse_feature_gates, parse_flags
from koordcore.values.duration import parse_seconds
from koordcore.values.invalid import InvalidInput
from koordcore.values.yaml_text import YamlError, load_yaml

S = TypeVar("S", bound="ServiceSettings")

_HIDDEN: Final = "**********"


@dataclass(frozen=True, slots=True)
class Flag:
    """Annotation of a settings field with further names of its flag: `addr: Annotated[str, Flag("metrics-addr")]`."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


def _seconds(value: object) -> object:
    return parse_seconds(value) if isinstance(value, str) else value


def _texts(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


# A duration: a Go duration as text (`15s`, `1m30s`), or a number of seconds in a file.
Seconds = Annotated[float, BeforeValidator(_seconds)]

# A list of texts: separated by commas in flags and environment, a list in a file. Repeated flags add up.
TextList = Annotated[tuple[str, ...], BeforeValidator(_texts)]


class InvalidSettings(ValueError):
    """Some settings are invalid. Each problem names field, source, rule and value."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


class ServiceSettings(BaseModel):
    """Base class of the settings of every service, with the fields that all services have. Later sources override
    earlier ones: defaults, file (YAML), environment (`KOORD_<SERVICE>_<FIELD>`), flags.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True, validate_default=True)

    service: ClassVar[str] = "service"  # Name of the service, used in environment variables, logs, metrics and traces
    about: ClassVar[str] = ""  # Paragraph about the service for `--help`
    known_gates: ClassVar[Sequence[Gate]] = ()  # Feature gates of the service
    folds_cluster: ClassVar[bool] = False  # Whether it folds the facts of all pods, so that it has millions of objects
    idle_flags: ClassVar[Sequence[FlagSpec]] = ()  # Flags that are accepted without effect
    _idle: tuple[FlagSpec, ...] = PrivateAttr(())

    settings_file: Path | None = Field(None, description="YAML file with settings, one key per field.")
    cluster: str = Field("dev", pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", description="Id of the cluster.")
    instance: str = Field(
        default_factory=socket.gethostname, min_length=1, description="Name of this process among its peers."
    )
    clock: str = Field("system", description="`system`, or `<speed>@<origin_real_unix>@<origin_unix>` of a scaled run.")

    archive: str = Field("", description="Folder or s3:// place with facts that the log has dropped.")
    nats_urls: TextList = Field(("nats://127.0.0.1:4222",), min_length=1, description="Servers of the log.")
    nats_user: str = Field("", description="User of the log; the name of the service if not given.")
    nats_seed_file: Path | None = Field(None, description="File with the NKEY seed of this service's user.")
    nats_token_file: Path | None = Field(
        None, description="File with a token for the issuer of agents' credentials, instead of a key. Read again."
    )
    nats_ca_file: Path | None = Field(None, description="CA of the servers of the log; given: TLS is used.")
    nats_cert_file: Path | None = Field(None, description="Client certificate for the log.")
    nats_key_file: Path | None = Field(None, description="Key of the client certificate for the log.")

    http_host: str = Field("127.0.0.1", description="Address to serve on.")
    http_port: int = Field(0, ge=0, le=65535, description="Port to serve on; 0: a free one, told in the log.")
    http_cert_file: Path | None = Field(None, description="Serving certificate; given: TLS. Reloaded on rotation.")
    http_key_file: Path | None = Field(None, description="Key of the serving certificate.")
    http_client_ca_file: Path | None = Field(
        None, description="CA of the clients; given: they must have a certificate."
    )
    tls_min_version: Literal["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"] = Field(
        "VersionTLS12", description="Oldest version of TLS to serve with. It is never older than 1.2."
    )
    tls_cipher_suites: TextList = Field(
        (), description="Cipher suites of TLS 1.2 to serve with, by their names in Go; none: those of OpenSSL."
    )
    http_allowed_hosts: TextList = Field(
        (), description="Host names that requests may name; none: only loopback names on a loopback address, else any."
    )
    http_access: Literal["auto", "open", "closed"] = Field(
        "auto", description="Who may send requests. auto: everybody on a loopback address without an access file."
    )
    http_access_file: Path | None = Field(
        None, description="YAML file with roles, tokens, OIDC issuer and limits. Read again when it changes."
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    log_verbosity: Annotated[int, Flag("v")] = Field(
        0, ge=0, description="As in Kubernetes' components: from 4 on, everything is logged, as with --log-level=debug."
    )
    log_format: Annotated[
        Literal["auto", "json", "console"],
        Flag("logging-format"),
        BeforeValidator(lambda form: "console" if form == "text" else form),
    ] = Field("auto", description="auto: console on a terminal, else JSON. text is another name of console.")
    otlp_endpoint: str | None = Field(
        None,
        pattern=r"^https?://",
        description="OTLP/HTTP endpoint for traces; https: OTEL_EXPORTER_OTLP_CERTIFICATE names its authority.",
    )
    trace_file: Path | None = Field(None, description="File for traces, one JSON object per span and line.")
    trace_sample_ratio: float = Field(1.0, ge=0, le=1, description="Share of the traces that are recorded.")

    shutdown_grace: Seconds = Field(20.0, gt=0, description="Time to finish what is in hand, in the host's time.")
    event_loop: Literal["auto", "uvloop", "asyncio"] = Field("auto", description="auto: uvloop when it is there.")
    feature_gates: FeatureGates = Field(
        default_factory=lambda: FeatureGates({}), description="Switches of features: A=true,B=false."
    )

    @field_validator("clock", mode="after")
    @classmethod
    def _clock_is_one(cls, text: str) -> str:
        return str(parse_clock(text))  # a bare speed becomes the full text, which child processes can share

    @field_validator("feature_gates", mode="before")
    @classmethod
    def _gates_are_known(cls, value: object) -> FeatureGates:
        match value:
            case FeatureGates():
                return parse_feature_gates(value.values, cls.known_gates)
            case str():
                return parse_feature_gates([value], cls.known_gates)
            case dict():
                given = cast("dict[object, object]", value)
                for name, on in given.items():
                    if not isinstance(name, str) or not isinstance(on, bool):
                        raise InvalidInput("<gate>: true or <gate>: false", f"{name}: {on}")
                return parse_feature_gates(cast("dict[str, bool]", given), cls.known_gates)
            case _:
                raise InvalidInput("A=true,B=false or a mapping of gates to booleans", value)

    def run_clock(self) -> SystemClock | ScaledClock:
        """Return the clock that the setting `clock` describes."""
        return parse_clock(self.clock)

    def is_open(self, *, is_loopback: bool) -> bool:
        """Return whether everybody may send every request, without credentials. The setting `http_access` decides:
        `open` is True and `closed` is False on every address. `auto` is True only on a loopback address without an
        access file.
        """
        if self.http_access == "auto":
            return is_loopback and self.http_access_file is None
        return self.http_access == "open"

    def shown(self) -> dict[str, object]:
        """Return field -> value for the log and `/configz`. Secrets, and credentials in URLs, are hidden."""
        return {name: _shown(getattr(self, name)) for name in type(self).model_fields}

    @classmethod
    def env_prefix(cls) -> str:
        """Return the prefix of the service's environment variables, `KOORD_<SERVICE>_`."""
        return f"KOORD_{cls.service.upper().replace('-', '_')}_"

    @classmethod
    def flag_specs(cls) -> list[FlagSpec]:
        """Return the definitions of the service's flags in the order of its fields. Its own fields come first."""
        own = [name for name in cls.model_fields if name not in ServiceSettings.model_fields]
        shared = [name for name in cls.model_fields if name in ServiceSettings.model_fields]
        return [*(_flag_of(name, cls.model_fields[name]) for name in own + shared), *cls.idle_flags]

    @property
    def given_idle_flags(self) -> Sequence[FlagSpec]:
        """Return the flags without effect that the command line has."""
        return self._idle

    @property
    def given_idle_gates(self) -> Sequence[Gate]:
        """Return the gates without effect that do not have their defaults."""
        values = self.feature_gates.values
        return [gate for gate in self.known_gates if gate.no_effect and values.get(gate.name) == (not gate.default)]

    @classmethod
    def load(cls, words: Sequence[str], environ: Mapping[str, str]) -> Self:
        """Return the settings from defaults, settings file, environment and flags. Later sources override earlier ones.

        Raises:
            InvalidSettings: A setting is invalid.
            HelpRequested: The command line asks for help.
        """
        try:
            flags = parse_flags(cls.flag_specs(), words)
        except InvalidFlag as error:
            raise InvalidSettings([str(error)]) from error
        prefix = cls.env_prefix()
        from_env = {name: environ[key] for name in cls.model_fields if (key := prefix + name.upper()) in environ}
        idle = tuple(spec for spec in cls.idle_flags if flags.pop(spec.field, None) is not None)
        from_flags = {name: _one_text(cls.model_fields[name], texts) for name, texts in flags.items()}
        from_file = _read_file(from_flags.get("settings_file") or from_env.get("settings_file"))
        try:
            settings = cls.model_validate({**from_file, **from_env, **from_flags})
            settings._idle = idle
            return settings
        except ValidationError as error:
            problems: list[str] = []
            for problem in error.errors(include_url=False):
                name = str(problem["loc"][0]) if problem["loc"] else ""
                if name in from_flags:
                    source = f"flag --{name.replace('_', '-')}"
                elif name in from_env:
                    source = f"environment {prefix}{name.upper()}"
                elif name in from_file:
                    source = "settings file"
                else:
                    source = "default"
                cause = (problem.get("ctx") or {}).get("error")
                path = ".".join(str(part) for part in problem["loc"])
                if problem["type"] == "extra_forbidden":
                    problems.append(f"{path} ({source}): there is no such setting")
                elif isinstance(cause, InvalidInput):
                    problems.append(f"{path} ({source}): must be {cause.rule}, got {cause.value!r}")
                else:
                    given = _HIDDEN if _is_secret(cls.model_fields.get(name)) else repr(problem["input"])
                    problems.append(f"{path} ({source}): {problem['msg']}, got {given}")
            # Not `from error`: the library's message repeats the values of secrets.
            raise InvalidSettings(problems) from None


def _read_file(path: str | None) -> dict[str, object]:
    if not path:
        return {}
    try:
        content: object = load_yaml(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSettings([f"settings_file: cannot be read: {error}"]) from error
    except (YamlError, InvalidInput, UnicodeDecodeError) as error:
        raise InvalidSettings([f"settings_file: {path} is not YAML: {error}"]) from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise InvalidSettings([f"settings_file: {path} must hold a mapping, got {type(content).__name__}"])
    return {str(key).replace("-", "_"): value for key, value in cast("dict[object, object]", content).items()}


def _one_text(field: FieldInfo, texts: Sequence[str]) -> str:
    """Return the text of a repeated flag: lists and gates are joined, otherwise the last one counts."""
    adds = field.annotation is FeatureGates or get_origin(field.annotation) is tuple
    return ",".join(texts) if adds else texts[-1]


def _flag_of(name: str, field: FieldInfo) -> FlagSpec:
    more = [other for meta in field.metadata if isinstance(meta, Flag) for other in meta.names]
    default = "" if field.is_required() or field.default_factory is not None else field.default
    shown = (
        ",".join(str(part) for part in cast("tuple[object, ...]", default)) if isinstance(default, tuple) else default
    )
    return FlagSpec(
        names=(name.replace("_", "-"), *more),
        field=name,
        is_bool=bool in _alternatives(field.annotation),
        help=field.description or "",
        default="" if shown is None else str(shown),
    )


def _alternatives(annotation: object) -> tuple[object, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _is_secret(field: FieldInfo | None) -> bool:
    return field is not None and SecretStr in _alternatives(field.annotation)


def _shown(value: object) -> object:
    from koordcore.service.telemetry.logging import redact_text

    match value:
        case SecretStr():
            return _HIDDEN
        case tuple():
            return [_shown(part) for part in cast("tuple[object, ...]", value)]
        case str():
            return redact_text(value)
        case int() | float() | bool() | None:
            return value
        case _:
            return str(value)
