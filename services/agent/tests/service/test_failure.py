"""The text of an error that nobody expected."""

from koord_agent.domain.failure import failure


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as same:
        return same


def test_an_error_names_the_line_that_raised_it() -> None:
    line = raised.__code__.co_firstlineno + 2
    error = raised(ValueError("no JSON"))
    assert failure("no usage report", error) == f"no usage report: ValueError: no JSON (test_failure.py:{line})"
    assert failure("", error) == f"ValueError: no JSON (test_failure.py:{line})"


def test_an_error_that_was_never_raised_has_no_line() -> None:
    assert failure("no usage report", KeyError("cpu")) == "no usage report: KeyError: 'cpu'"
