"""The text of an error that nobody expected, for problems, logs and answers of the agent."""

import traceback
from pathlib import PurePath


def failure(what: str, error: BaseException) -> str:
    """Return a sentence about an error that nobody expected, such as `no usage report: KeyError: 'cpu' (report.py:42)`.

    It ends with `file:line` of the code that raised the error. An error that was never raised has no such place. `what`
    says what failed, and what that means. If it is "", the sentence begins with the error.
    """
    sentence = f"{type(error).__name__}: {error}"
    if what:
        sentence = f"{what}: {sentence}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{sentence} ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})" if frames else sentence
