"""Aggregates of gangs: any text may name a gang, and no two gangs share an aggregate."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koordcore.events.gang import gang_ref

NAMES = st.one_of(st.text(), st.text(alphabet="aZ0._~-", max_size=8))


@given(first=NAMES, second=NAMES)
def test_two_gangs_have_two_aggregates(first: str, second: str) -> None:
    assert (gang_ref("d", first) == gang_ref("d", second)) == (first == second)


@pytest.mark.parametrize(("first", "second"), [("job.1", "job_1"), ("Ä", gang_ref("d", "Ä").id.removeprefix("d="))])
def test_names_that_could_be_mistaken_have_two_aggregates(first: str, second: str) -> None:
    assert gang_ref("d", first) != gang_ref("d", second)


def test_the_name_of_an_object_stays_readable() -> None:
    assert str(gang_ref("team.a", "train.1")) == "gang.team_a=train_1"
