"""The file of static tokens: what it keeps, what it refuses, and that it holds no token."""

import datetime
import stat
from pathlib import Path

import pytest
from koordcore.service.access.configuration import read_access
from koordcore.service.access.needs import Role, Unauthenticated
from koordcore.service.access.static_tokens import (
    StaticToken,
    digest_of,
    ensure_access_files,
    identity_of,
    new_token,
    read_tokens,
    write_tokens,
)
from koordcore.values.invalid import InvalidInput

NOW = datetime.datetime(2026, 11, 25, tzinfo=datetime.UTC)


def test_a_written_file_holds_the_hash_and_not_the_token(tmp_path: Path) -> None:
    token, file = new_token(), tmp_path / "tokens.yaml"
    kept = StaticToken(name="alice", roles=(Role.OPERATE,), sha256=digest_of(token), expires=NOW)
    write_tokens(file, {kept.sha256: kept})
    assert token not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_tokens(file) == {kept.sha256: kept}


def test_operate_includes_view() -> None:
    token = new_token()
    kept = StaticToken(name="alice", roles=(Role.OPERATE,), sha256=digest_of(token))
    assert identity_of(token, {kept.sha256: kept}, NOW).roles == {Role.VIEW, Role.OPERATE}


def test_prometheus_gets_a_token_if_it_has_a_folder_and_agents_know_no_other_one(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    ensure_access_files(tmp_path)
    tokens = read_tokens(tmp_path / "access" / "tokens.yaml")
    assert [each.name for each in tokens.values()] == ["operator"]
    assert not list((tmp_path / "agent").iterdir())

    (tmp_path / "prometheus").mkdir()
    for _ in range(2):
        ensure_access_files(tmp_path)
        tokens = read_tokens(tmp_path / "access" / "tokens.yaml")
        assert [(each.name, each.roles) for each in tokens.values()] == [
            ("operator", (Role.OPERATE,)),
            ("prometheus", (Role.METRICS,)),
        ]
    secret = (tmp_path / "prometheus" / "token").read_text()
    assert (tmp_path / "prometheus" / "token").stat().st_mode & 0o777 == 0o640
    access, _ = read_access(tmp_path / "agent" / "access.yaml")
    assert list(access.tokens) == [digest_of(secret)]
    assert access.session_key is None
    (tmp_path / "access" / "tokens.yaml").write_text("tokens: []")  # revoked tokens stay revoked
    ensure_access_files(tmp_path)
    assert read_tokens(tmp_path / "access" / "tokens.yaml") == {}


def test_an_expired_and_an_unknown_token_are_refused() -> None:
    token = new_token()
    kept = StaticToken(name="alice", roles=(Role.VIEW,), sha256=digest_of(token), expires=NOW)
    tokens = {kept.sha256: kept}
    assert identity_of(token, tokens, NOW - datetime.timedelta(seconds=1)).subject == "token:alice"
    with pytest.raises(Unauthenticated, match="expired"):
        identity_of(token, tokens, NOW)
    with pytest.raises(Unauthenticated, match="unknown"):
        identity_of(new_token(), tokens, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "tokens: [{name: a, roles: [admin], sha256: " + "0" * 64 + "}]",
        "tokens: [{name: a, roles: [view], sha256: secret-value}]",
        "tokens: [{name: a, roles: [], sha256: " + "0" * 64 + "}]",
        f"tokens: [{{name: a, roles: [view], sha256: {'0' * 64}}}, {{name: a, roles: [view], sha256: {'1' * 64}}}]",
        "tokens: {",
        "more: 1",
    ],
)
def test_an_invalid_file_is_refused_without_repeating_what_it_holds(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tokens.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        read_tokens(file)
    assert "secret-value" not in str(refused.value)
    assert str(file) in str(refused.value)
