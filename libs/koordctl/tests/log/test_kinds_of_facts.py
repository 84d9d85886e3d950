"""`koord events --kind` takes the kinds of aggregates, and the other words for those that are kinds of objects."""

import pytest
import typer
from koordctl.log.events import aggregates_named


def test_other_words_for_kinds_name_their_aggregates() -> None:
    assert aggregates_named(["po", "Pods", "no", "resv", "migrations"]) == [
        "pod",
        "pod",
        "node",
        "reservation",
        "migration",
    ]
    assert aggregates_named(["pod", "nodepolicy", "podspec"]) == ["pod", "nodepolicy", "podspec"]


def test_an_unknown_word_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        aggregates_named(["po", "gpus", "flower"])
    assert capsys.readouterr().err.startswith("error: unknown kind flower, gpu; known: ")
