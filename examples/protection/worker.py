"""The two processes of the measurement: one that answers requests, one that burns whatever CPU it gets.

    worker.py serve FILE     every 15 ms a request of about 3 ms of CPU arrives; "moment latency" in ms, one line each
    worker.py burn FILE      counts rounds; "moment rounds" five times a second

Requests arrive by the clock whether the last one is done or not, so waiting counts as latency.
"""

import sys
import time

PERIOD_SECONDS = 0.015
ROUNDS_PER_REQUEST = 40


def work() -> int:
    """A piece of CPU work of fixed size."""
    total = 0
    for number in range(1_000):
        total += number * number
    return total


def serve(path: str) -> None:
    """Answer requests for ever."""
    with open(path, "w", buffering=1, encoding="ascii") as file:  # noqa: PTH123 - one line at a time
        due = time.monotonic()
        while True:
            now = time.monotonic()
            if now < due:
                time.sleep(due - now)
            for _ in range(ROUNDS_PER_REQUEST):
                work()
            done = time.monotonic()
            file.write(f"{done:.6f} {(done - due) * 1000:.3f}\n")
            # a backlog of more than a second is dropped, as a client would
            due = max(due + PERIOD_SECONDS, done - 1.0)


def burn(path: str) -> None:
    """Use CPU for ever."""
    rounds, said = 0, time.monotonic()
    with open(path, "w", buffering=1, encoding="ascii") as file:  # noqa: PTH123
        while True:
            work()
            rounds += 1
            now = time.monotonic()
            if now - said >= 0.2:
                file.write(f"{now:.6f} {rounds}\n")
                rounds, said = 0, now


if __name__ == "__main__":
    {"serve": serve, "burn": burn}[sys.argv[1]](sys.argv[2])
