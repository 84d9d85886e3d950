"""The pause of a follower after troubles in a row grows, and stays bounded in an outage of any length."""

from koordcore.bus.read.follower import pause_after


def test_the_pause_grows_to_a_second_and_stays_there() -> None:
    pauses = [pause_after(troubles) for troubles in (1, 2, 3, 6, 7, 1024, 10**9)]
    assert pauses == [0.04, 0.08, 0.16, 1.0, 1.0, 1.0, 1.0]
