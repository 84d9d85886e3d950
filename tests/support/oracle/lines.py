"""Programs on the code of others, which answer each line of JSON, a case, with a line of JSON."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

PROGRAMS = Path(__file__).parents[3] / "var" / "oracle"
"""Where `make test-oracle` builds them."""

Document = dict[str, Any]


class CanFail(Protocol):
    """An answer. `error`: why the program cannot read the case; "" if it can."""

    error: str


A = TypeVar("A", bound=CanFail)


class LineProgram(Generic[A]):
    """A running program. It answers one case at a time."""

    path: ClassVar[Path]
    answer: type[A]  # How an answer is decoded

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def ask(self, case: Document) -> A:
        """The answer to a case. Fails if the program cannot read it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(case) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"{self.path.name} has ended"
        answer = msgspec.json.decode(line, type=self.answer)
        assert not answer.error, answer.error
        return answer


P = TypeVar("P", bound=LineProgram[Any])


@contextmanager
def running(kind: type[P]) -> Generator[P]:
    process = subprocess.Popen([kind.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        try:
            yield kind(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
