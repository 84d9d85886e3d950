"""`typing.override`, which Python 3.11 lacks: the method implements a member of a base class, where its text stands."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method):
        return method


__all__ = ["override"]
