"""Comparison of the projector's tables with the log, for `koord verify`."""

import msgspec


class CompareRequest(msgspec.Struct, frozen=True):
    """Request to compare the tables that people read with the log. It is repeated with the same `run` until it is done.

    A comparison of many facts takes longer than one request may.
    """

    run: str  # Id of the comparison, chosen by the caller. An unknown one begins.


class ComparedTable(msgspec.Struct, frozen=True, kw_only=True):
    """One table, compared with the log."""

    table: str
    rows: int  # Number of rows that were compared
    difference: str = ""  # Where the rows differ from what the log gives, one sentence; "": they are equal
    left_out: str = ""  # Which rows were not compared, and why; "": all were


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Answer: the comparison, or how far it is."""

    is_done: bool
    position: int  # Position of the tables, up to which the log is folded
    folded: int = 0  # Position up to which the log was read until now
    tables: list[ComparedTable] = []  # Empty until it is done
    trouble: str = ""  # Why it could not be made; "" otherwise
