"""Waiting questions of the servers about clients, in an order in which no sender keeps out another.

Anybody who reaches a server can make it ask, as often as he opens a connection. So the addresses of the clients take
turns, and a question that the server has given up is left out without work. Refusals are remembered for some seconds.

Source: decision 0057.
"""

import hashlib
import re
from collections import deque
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

LONGEST_TOKEN: Final = 4096  # Letters of a token; the server takes no longer line
REFUSED_SECONDS: Final = 5.0  # Time for which a refusal is repeated without another check
MOST_REFUSALS: Final = 10_000  # Refusals that are remembered
MOST_PER_ADDRESS: Final = 6000  # Questions that wait of one address; the oldest one is left out first
MOST_ADDRESSES: Final = 20_000  # Addresses with waiting questions; questions of further ones are left out

# Header, claims and signature of a JWT
_TOKEN: Final = re.compile(r"[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}", re.ASCII)


def why_no_token(token: str) -> str:
    """Return why a text cannot be a token of an agent, whoever signed it; "" if it may be one."""
    if not token:
        return "the client has no token"
    if len(token) > LONGEST_TOKEN:
        return f"a token of {len(token)} letters; at most {LONGEST_TOKEN}"
    return "" if _TOKEN.fullmatch(token) else "the token is not a JWT"


class Question(NamedTuple, Generic[T]):
    """A question that waits. `end`: monotonic seconds at which the server gives it up."""

    end: float
    asked: T


class FairQuestions(Generic[T]):
    """Questions by the address of the client. Addresses take turns; of one address, the oldest question comes first."""

    def __init__(self) -> None:
        self.left_out = 0  # Number of questions that were given up
        # An address is in the order of its last turn; it leaves when it has no question.
        self._waiting: dict[str, deque[Question[T]]] = {}

    def put(self, address: str, question: Question[T]) -> None:
        """Add a question about a client at an address."""
        waiting = self._waiting.get(address)
        if waiting is None:
            if len(self._waiting) >= MOST_ADDRESSES:
                self.left_out += 1
                return
            waiting = self._waiting[address] = deque()
        if len(waiting) >= MOST_PER_ADDRESS:
            waiting.popleft()
            self.left_out += 1
        waiting.append(question)

    def take(self, now: float) -> Question[T] | None:
        """Remove and return the next question that the server has not given up; None if there is none. `now`: monotonic
        seconds.
        """
        while self._waiting:
            address = next(iter(self._waiting))
            waiting = self._waiting.pop(address)
            while waiting and waiting[0].end <= now:
                waiting.popleft()
                self.left_out += 1
            if waiting:
                found = waiting.popleft()
                if waiting:
                    self._waiting[address] = waiting  # behind all others
                return found
        return None


class RefusedTokens:
    """Refused tokens of the last seconds, by their digest."""

    def __init__(self) -> None:
        self._found: dict[bytes, tuple[float, str]] = {}  # Digest -> end in monotonic seconds, and reason

    def reason(self, token: str, now: float) -> str:
        """Return why a token was refused a moment ago; "" if it was not. `now`: monotonic seconds."""
        end, reason = self._found.get(_digest(token), (0.0, ""))
        return reason if now < end else ""

    def note(self, token: str, reason: str, now: float) -> None:
        """Remember a refusal. `now`: monotonic seconds."""
        key = _digest(token)
        self._found.pop(key, None)
        if len(self._found) >= MOST_REFUSALS:
            del self._found[next(iter(self._found))]
        self._found[key] = (now + REFUSED_SECONDS, reason)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
