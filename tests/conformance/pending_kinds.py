"""The kinds of vectors that no adapter answers yet, and the issue that brings each: `pending_kinds.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

PATH = Path(__file__).with_suffix(".toml")


def pending_kinds() -> dict[str, str]:
    """Return the title of the issue for each pending kind.

    Raises:
        ValueError: A kind is listed below two issues.
    """
    listed: dict[str, list[str]] = tomllib.loads(PATH.read_text(encoding="utf-8"))
    issues: dict[str, str] = {}
    for issue, kinds in listed.items():
        for kind in kinds:
            if kind in issues:
                raise ValueError(f"{PATH.name}: {kind} is listed below {issues[kind]!r} and {issue!r}")
            issues[kind] = issue
    return issues


def complaints(kinds: Collection[str], answered: Collection[str], pending: Mapping[str, str]) -> list[str]:
    """Compare the list of pending kinds with the kinds that the vectors hold and the adapters answer.

    Args:
        kinds: Every kind that has a vector file.
        answered: Every kind that has an adapter.
        pending: Issue by kind, as `pending_kinds` returns it.

    Returns:
        One sentence for each kind that is listed wrongly or not at all; empty if the list is exact.
    """
    return [
        *(
            f"{kind} has no adapter: list it below the issue that brings it"
            for kind in sorted({*kinds} - {*answered} - {*pending})
        ),
        *(f"{kind} has an adapter: remove it from {pending[kind]!r}" for kind in sorted({*pending} & {*answered})),
        *(
            f"{kind} has no vector file: remove it from {pending[kind]!r}"
            for kind in sorted({*pending} - {*kinds} - {*answered})
        ),
    ]
