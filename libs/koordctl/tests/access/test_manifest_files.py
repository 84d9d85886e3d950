"""Which files a user means by a name."""

from pathlib import Path

import pytest
import typer
from koordctl.access.files import manifest_texts


def test_folder_means_its_own_manifests_like_kubectl(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for name in ("b.json", "a.yaml", "notes.md", "below/c.yaml"):
        (tmp_path / name).write_text(name)
    assert manifest_texts(str(tmp_path)) == [
        (str(tmp_path / "a.yaml"), b"a.yaml"),
        (str(tmp_path / "b.json"), b"b.json"),
    ]


def test_what_cannot_be_read_ends_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(typer.Exit):
            manifest_texts(str(name))
    said = capsys.readouterr().err
    assert "in this folder" in said
    assert "No such file" in said
