"""Profile and stacks of the running process, and the verbosity of its log, as in Kubernetes' components.

A thread samples the stacks of all threads, so the event loop and, for example, the thread of a round are both in the
profile below `/debug/pprof/`, and both go on. The standard library's profiler sees one thread only, and slows it down.
`PUT /debug/flags/v` changes the verbosity.

Source: descheduler spec, 2 (HTTP); scheduler-core spec, 14.
"""

import asyncio
import inspect
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Final, Literal

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from koordcore.service.clock import SystemClock
from koordcore.service.telemetry.logging import set_level
from koordcore.values.invalid import InvalidInput

_EVERY_SECONDS: Final = 0.01
_DEFAULT_SECONDS: Final = 30.0
_MOST_SECONDS: Final = 50.0  # An answer must have begun after 60 seconds
_INDEX: Final = f"""\
/debug/pprof/profile?seconds={_DEFAULT_SECONDS:.0f}  samples of all threads: one line per stack, for flame graphs
/debug/pprof/stacks              the present stacks of all threads and tasks
"""


def sampled(seconds: float, stop: threading.Event) -> Counter[str]:
    """Return how often each stack was seen, for all threads but the calling one. There is at least one sample. A stack
    is the name of its thread and the names of its functions, outermost first, separated by semicolons. `seconds`: real
    time to sample for. `stop`: ends the sampling earlier.
    """
    found: Counter[str] = Counter()
    clock = SystemClock()
    end = clock.monotonic() + seconds
    while True:
        found.update(
            ";".join([name, *map(_function, reversed(list(traceback.walk_stack(frame))))]) for name, frame in _threads()
        )
        if clock.monotonic() >= end or stop.wait(_EVERY_SECONDS):
            return found


def _threads() -> Iterator[tuple[str, FrameType]]:
    """Yield name and present frame of each thread but the calling one."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # pyright: ignore[reportPrivateUsage]  documented for this use
        if ident != threading.get_ident():
            yield names.get(ident, str(ident)), frame


def _function(place: tuple[FrameType, int]) -> str:
    frame, _ = place
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"


async def _profile(request: Request) -> Response:
    text = request.query_params.get("seconds", str(_DEFAULT_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MOST_SECONDS:
        raise InvalidInput(f"a number above 0, and at most {_MOST_SECONDS:.0f}", text, "seconds")
    stop = threading.Event()
    try:
        found = await asyncio.to_thread(sampled, seconds, stop)
    finally:
        stop.set()
    return PlainTextResponse("".join(f"{stack} {count}\n" for stack, count in found.most_common()))


async def _stacks(_: Request) -> Response:
    threads = await asyncio.to_thread(lambda: list(_threads()))
    stacks = [f"thread {name}\n{''.join(traceback.format_stack(frame))}" for name, frame in threads]
    stacks += [f"task {task.get_name()}\n{''.join(_waiting(task))}" for task in asyncio.all_tasks()]
    return PlainTextResponse("\n".join(stacks))


def _waiting(task: asyncio.Task[object]) -> Iterator[str]:
    """Yield the places at which the coroutines of a task wait, outermost first."""
    coroutine: object = task.get_coro()
    while inspect.iscoroutine(coroutine) and (frame := coroutine.cr_frame) is not None:
        yield from traceback.StackSummary.extract([(frame, frame.f_lineno)]).format()
        coroutine = coroutine.cr_await


async def _index(_: Request) -> Response:
    return PlainTextResponse(_INDEX)


PROFILING: Final = (
    Route("/debug/pprof/", _index),
    Route("/debug/pprof/profile", _profile),
    Route("/debug/pprof/stacks", _stacks),
)


DEBUG_VERBOSITY: Final = 4  # Least verbosity at which everything is logged


def level_of(verbosity: str) -> Literal["debug", "info"]:
    """Return the level of the log for a verbosity: `debug` from 4 on. `verbosity`: text of a number, 0 or greater.

    Raises:
        InvalidInput: The text is no such number.
    """
    if not verbosity.strip().isdecimal():
        raise InvalidInput("a number, 0 or greater", verbosity, "v")
    return "debug" if int(verbosity) >= DEBUG_VERBOSITY else "info"


async def _set_verbosity(request: Request) -> Response:
    """Set the verbosity that the body of a request has."""
    verbosity = (await request.body()).decode(errors="replace")
    set_level(level_of(verbosity))
    return PlainTextResponse(f"successfully set v to {verbosity.strip()}")


# For services that have no other debug flags.
VERBOSITY: Final = Route("/debug/flags/v", _set_verbosity, methods=["PUT"])
