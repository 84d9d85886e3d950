"""Settings: the four sources and their order, flags in Go's style, errors that name field, rule and value, gates."""

from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from koordcore.service.flags import FeatureGates, Gate, HelpRequested, Stage, parse_feature_gates, render_help
from koordcore.service.settings import Flag, InvalidSettings, Seconds, ServiceSettings, TextList
from koordcore.service.telemetry.logging import redact, redact_text
from koordcore.values.invalid import InvalidInput
from pydantic import Field, SecretStr

GATES = (
    Gate("Alpha1", default=False, stage=Stage.ALPHA),
    Gate("Alpha2", default=False, stage=Stage.ALPHA),
    Gate("Beta1", default=True, stage=Stage.BETA),
    Gate("Done", default=True, stage=Stage.GA),
)


class DemoSettings(ServiceSettings):
    """A service with one field of each kind."""

    service: ClassVar[str] = "demo"
    about: ClassVar[str] = "Shows how settings work."
    known_gates = GATES

    workers: int = Field(4, ge=1, description="How many.")
    period: Seconds = Field(10.0, gt=0)
    dry_run: bool = False
    verbose: bool | None = None
    addresses: TextList = ()
    scores: Annotated[int, Flag("debug-scores", "s")] = 0
    api_key: SecretStr | None = None


def load(*words: str, **environ: str) -> DemoSettings:
    return DemoSettings.load(words, {f"KOORD_DEMO_{name.upper()}": text for name, text in environ.items()})


def test_the_later_source_wins(tmp_path: Path) -> None:
    file = tmp_path / "demo.yaml"
    file.write_text("workers: 5\nhttp_port: 5\nperiod: 5\nlog-level: debug\n")
    settings = load("--settings-file", str(file), "--http-port=7", http_port="6", workers="6")
    assert (settings.http_port, settings.workers, settings.period, settings.log_level) == (7, 6, 5.0, "debug")
    assert settings.scores == 0
    assert load(settings_file=str(file)).workers == 5


@pytest.mark.parametrize(
    ("words", "field", "expected"),
    [
        (["-workers", "3"], "workers", 3),
        (["--workers", "3"], "workers", 3),
        (["-workers=3"], "workers", 3),
        (["--workers=3", "--workers=4"], "workers", 4),
        (["--dry-run"], "dry_run", True),
        (["-dry-run=false"], "dry_run", False),
        (["--dry-run=true"], "dry_run", True),
        (["--verbose"], "verbose", True),
        (["-s", "9"], "scores", 9),
        (["--debug-scores=9"], "scores", 9),
        (["--period=1m30s"], "period", 90.0),
        (["--addresses=a,b", "--addresses", "c"], "addresses", ("a", "b", "c")),
        (["--addresses="], "addresses", ()),
        (["--nats-urls=nats://h:1, nats://h:2"], "nats_urls", ("nats://h:1", "nats://h:2")),
        (["--clock=60@1.5@2.5"], "clock", "60.0@1.5@2.5"),
        (["--trace-file=a=b"], "trace_file", Path("a=b")),
    ],
)
def test_go_style_flags(words: list[str], field: str, expected: object) -> None:
    assert getattr(load(*words), field) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--wrokers=3"], "unknown flag --wrokers"),
        (["--workers"], "flag --workers needs a value"),
        (["serve"], "unexpected argument 'serve'"),
        (["--dry-run", "false"], "unexpected argument 'false'"),
        (["--workers=0"], r"workers \(flag --workers\): .*greater than or equal to 1, got '0'"),
        (["--workers=many"], r"workers \(flag --workers\): .*integer.*, got 'many'"),
        (["--http-port=70000"], r"http_port \(flag --http-port\): .*65535, got '70000'"),
        (["--period=10"], r"period \(flag --period\): must be a duration such as 30s.*, got '10'"),
        (["--clock=fast"], r"clock \(flag --clock\): must be `system` or .*, got 'fast'"),
        (["--cluster=Not_A_Token"], r"cluster \(flag --cluster\): .*pattern.*, got 'Not_A_Token'"),
        (
            ["--feature-gates=Nope=true"],
            r"feature_gates \(flag --feature-gates\): must be a known feature gate.*'Nope'",
        ),
        (["--log-level=loud"], r"log_level \(flag --log-level\): .*'debug'.*, got 'loud'"),
        (["--settings-file=/does/not/exist"], "settings_file: cannot be read"),
    ],
)
def test_errors_name_the_field_the_rule_and_the_value(words: list[str], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        load(*words)


def test_errors_name_their_source(tmp_path: Path) -> None:
    file = tmp_path / "demo.yaml"
    file.write_text("workers: 0\nunknown: 1\n")
    with pytest.raises(InvalidSettings) as caught:
        load("--settings-file", str(file), http_port="-1")
    assert len(caught.value.problems) == 3
    text = str(caught.value)
    assert "workers (settings file)" in text
    assert "unknown (settings file): there is no such setting" in text
    assert "http_port (environment KOORD_DEMO_HTTP_PORT)" in text


@pytest.mark.parametrize("content", ["[1, 2]", "a: [", "\x00"])
def test_a_broken_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "demo.yaml"
    file.write_text(content)
    with pytest.raises(InvalidSettings, match="settings_file"):
        load("--settings-file", str(file))


def test_variables_that_kubernetes_adds_are_ignored() -> None:
    assert load(port="tcp://10.0.0.1:80", service_host="10.0.0.1").workers == 4


def test_a_bare_speed_becomes_a_text_that_children_can_share() -> None:
    settings = load("--clock=60")
    assert settings.clock.count("@") == 2
    assert str(settings.run_clock()) == settings.clock


def test_secrets_are_neither_shown_nor_repeated_in_errors() -> None:
    settings = load("--api-key=hunter2", "--nats-urls=nats://user:hunter2@h:4222")
    assert "hunter2" not in repr(settings.shown()) + repr(settings.api_key)
    assert "h:4222" in repr(settings.shown())

    class Short(DemoSettings):
        api_key: SecretStr | None = Field(None, max_length=3)

    with pytest.raises(InvalidSettings) as caught:
        Short.load(["--api-key=hunter2"], {})
    assert "api_key" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_help_lists_every_flag_with_its_default() -> None:
    with pytest.raises(HelpRequested):
        load("--help")
    text = render_help("koord-demo", DemoSettings.about, DemoSettings.flag_specs())
    assert "--workers <value>" in text
    assert "How many. (default 4)" in text
    assert "--scores, --debug-scores, -s <value>" in text
    assert text.index("--workers") < text.index("--cluster")
    for spec in DemoSettings.flag_specs():
        assert f"--{spec.names[0]}" in text


@pytest.mark.parametrize(
    ("texts", "on"),
    [
        ([], {"Beta1", "Done"}),
        (["Alpha1=true,Beta1=false"], {"Alpha1", "Done"}),
        (["AllAlpha=true"], {"Alpha1", "Alpha2", "Beta1", "Done"}),
        (["AllAlpha=true,Alpha2=false"], {"Alpha1", "Beta1", "Done"}),
        (["Alpha2=false,AllAlpha=true"], {"Alpha1", "Beta1", "Done"}),
        (["AllBeta=F", " Alpha1 = T "], {"Alpha1", "Done"}),
        (["Alpha1=true", "Alpha1=false"], {"Beta1", "Done"}),
        (["Done=true"], {"Beta1", "Done"}),
    ],
)
def test_feature_gates(texts: list[str], on: set[str]) -> None:
    gates = parse_feature_gates(texts, GATES)
    assert {gate.name for gate in GATES if gates.enabled(gate.name)} == on
    assert parse_feature_gates([str(gates)], GATES) == gates


@pytest.mark.parametrize("text", ["Nope=true", "Alpha1", "Alpha1=yes", "=true", "Done=false", "alpha1=true"])
def test_wrong_feature_gates_are_fatal(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_feature_gates([text], GATES)


def test_gates_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "demo.yaml"
    file.write_text("feature-gates: {Alpha1: true, AllBeta: false}\n")
    assert load("--settings-file", str(file)).feature_gates == FeatureGates(
        {"Alpha1": True, "Alpha2": False, "Beta1": False, "Done": True}
    )
    assert load().feature_gates.enabled("Beta1")
    with pytest.raises(KeyError):
        load().feature_gates.enabled("Undeclared")


@pytest.mark.parametrize(
    "secret",
    [
        "SUAMK2FG4MI6UE3ACF3FK3OIQBCEIEZV7NSWFFEW63UXMRLFM2XLAXK4GY",
        "nats://user:s3cret@host:4222",
        "Authorization: Bearer abcdefghijklmnop",
        "Authorization: BEARER abcdefghijklmnop",
        "-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----",
    ],
)
def test_secret_texts_are_recognised(secret: str) -> None:
    shown = redact_text(f"before {secret} after")
    assert shown.startswith("before ")
    assert "*****" in shown
    for part in ("SUAMK2", "s3cret", "abcdefghijklmnop", "MIIabc"):
        assert part not in shown


def test_secret_names_hide_their_values_at_any_depth() -> None:
    assert redact({"a": {"api_token": "x", "nats_seed_file": "/p"}, "password": 1, "pods": ["p"]}) == {
        "a": {"api_token": "**********", "nats_seed_file": "/p"},
        "password": "**********",
        "pods": ["p"],
    }
    assert redact_text("SUSPENDED pod placed on node n-1") == "SUSPENDED pod placed on node n-1"
