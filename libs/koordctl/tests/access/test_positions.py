"""Where a moment lies in the log, and what is said of one that is not there."""

import pytest
import typer
from koordctl.access.times import given_position


def test_a_number_within_the_log_is_a_position_and_other_texts_are_none() -> None:
    assert given_position("--to", "7", 7) == 7
    assert [given_position("--to", text, 7) for text in ("-1", "x", "2026-11-21T08:30:00Z", "", "٣")] == [None] * 5


def test_a_position_beyond_the_end_is_not_found_and_no_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as end:
        given_position("--from", "8", 7)
    assert end.value.exit_code == 1
    assert capsys.readouterr().err == "error: --from 8: the log ends at 7\n"
