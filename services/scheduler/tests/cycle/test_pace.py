"""Small appends are some time apart, and the one that had to wait is called for."""

import pytest
from koord_scheduler.shell import publishing as pace_module
from koord_scheduler.shell.publishing import FEW, Pace
from support.until import until


async def test_an_append_that_comes_early_waits_until_it_is_called_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_module, "BETWEEN_APPENDS_SECONDS", 2.0)  # the test process may stand still for less
    called: list[bool] = []
    pace = Pace(lambda: called.append(pace.may_begin()))

    assert pace.may_begin()
    pace.began(1)
    assert not pace.may_begin()
    assert not pace.may_begin()
    await until(lambda: called)

    assert called == [True]


async def test_the_pause_after_an_append_of_many_decisions_is_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_module, "AFTER_MANY_SECONDS", 3600.0)
    pace = Pace(lambda: None)
    pace.began(FEW)
    await until(pace.may_begin)
    pace.began(FEW + 1)

    assert not pace.may_begin()


async def test_after_a_pause_an_append_begins_at_once() -> None:
    pace = Pace(lambda: None)
    pace.began(1)
    await until(pace.may_begin)

    assert pace.may_begin()
