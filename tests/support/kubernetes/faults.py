"""What goes wrong on demand: answers instead of service, slow answers, lost answers, dropped watches."""

import asyncio
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Fault:
    """For requests of a method whose path contains `path`: wait, then answer `code` (0: serve), `times` times.

    watch           only watches (True), only others (False), both (None)
    lose_answer     carry it out, then answer 504
    """

    method: str
    path: str
    code: int = 0
    message: str = "made to fail"
    retry_after: int | None = None
    seconds: float = 0.0
    times: int = 1
    watch: bool | None = None
    lose_answer: bool = False


class Faults:
    """The faults that are in force."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self.dropped = asyncio.Event()
        self.served = 0

    def answer(
        self,
        method: str,
        path: str,
        code: int,
        *,
        times: int = 1,
        retry_after: int | None = None,
        watch: bool | None = None,
    ) -> Fault:
        """Answers an error instead of serving."""
        return self.add(Fault(method, path, code, retry_after=retry_after, times=times, watch=watch))

    def add(self, fault: Fault) -> Fault:
        """Any fault."""
        self._faults.append(fault)
        return fault

    def take(self, method: str, path: str, parameters: dict[str, str]) -> Fault | None:
        """The fault for a request; it is used up by one."""
        watches = parameters.get("watch") in ("1", "true")
        for fault in self._faults:
            if fault.times > 0 and fault.method == method and fault.path in path and fault.watch in (None, watches):
                fault.times -= 1
                self.served += 1
                return fault
        return None

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._faults.clear()

    def drop_watches(self) -> None:
        """Ends every watch that is open now."""
        event, self.dropped = self.dropped, asyncio.Event()
        event.set()
