"""An object that cannot be read is not taken for deleted."""

from koord_manager.domain.gateway.resources import PODS
from koord_manager.shell.gateway.listwatch import Complete


def test_a_list_tells_deletions_only_when_all_of_it_could_be_read() -> None:
    assert Complete(PODS, frozenset()).tells_deletions
    assert not Complete(PODS, frozenset(), unreadable=1).tells_deletions
    assert not Complete(PODS, frozenset(), served=False).tells_deletions
