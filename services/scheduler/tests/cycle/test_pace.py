"""Small appends are some time apart, and the one that had to wait is called for."""

from koord_scheduler.shell.pace import Pace
from support.until import until


async def test_an_append_that_comes_early_waits_until_it_is_called_for() -> None:
    called: list[bool] = []
    pace = Pace(lambda: called.append(pace.may_begin()))

    assert pace.may_begin()
    pace.began()
    assert not pace.may_begin()
    assert not pace.may_begin()
    await until(lambda: called)

    assert called == [True]


async def test_after_a_pause_an_append_begins_at_once() -> None:
    pace = Pace(lambda: None)
    pace.began()
    await until(pace.may_begin)

    assert pace.may_begin()
