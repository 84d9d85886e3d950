"""Certificate files are replaced as a whole, and what could not be replaced leaves nothing behind."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from koord_manager.shell.webhooks.certificates import make_bundle
from koord_manager.shell.webhooks.keeper import NotKept, read_files, write_files

BUNDLE = make_bundle("webhook.example", datetime(2026, 1, 1, tzinfo=UTC), None)


def test_a_new_bundle_replaces_the_one_before(tmp_path: Path) -> None:
    for _ in range(2):
        write_files(tmp_path, BUNDLE)
        assert read_files(tmp_path) == BUNDLE.files()
        assert len(list(tmp_path.iterdir())) == 2, "the link and its folder"


def test_files_that_cannot_be_replaced_leave_no_other_key_behind(tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    with pytest.raises(NotKept):
        write_files(tmp_path, BUNDLE)
    assert [path.name for path in tmp_path.iterdir()] == ["current"]
