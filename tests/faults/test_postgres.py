"""Rows of the projector's tables are changed or deleted: `koord verify` notices each of them."""

import asyncio
from typing import Final, NamedTuple

import psycopg
import pytest
from psycopg import sql
from support.embedded_stack import var_folder
from support.faults.small_stack import SmallStack, small_stack

pytestmark = [pytest.mark.nats, pytest.mark.postgres, pytest.mark.slow, pytest.mark.deep]

READ_BY_PEOPLE: Final = ("events", "aggregates", "pods", "node_versions", "observations")
"""Tables that `koord verify` compares with a fold, and in which a stack without a descheduler has rows."""


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: str
    is_key: bool


def _columns(db: psycopg.Connection, table: str) -> list[Column]:
    found = db.execute(
        """SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(a.attnum = ANY(i.indkey), false)
           FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
           WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum""",
        [table],
    )
    return [Column(*row) for row in found]


class Row:
    """One row in the middle of a table, which can be damaged and mended."""

    def __init__(self, db: psycopg.Connection, table: str) -> None:
        self._db = db
        self._table = sql.Identifier(table)
        self._columns = _columns(db, table)
        keys = [column for column in self._columns if column.is_key]
        order = sql.SQL(", ").join(sql.Identifier(key.name) for key in keys)
        rows = db.execute(sql.SQL("SELECT * FROM {} ORDER BY {}").format(self._table, order)).fetchall()
        assert rows, f"{table} has no rows"
        self._row = rows[len(rows) // 2]
        self._is_it = sql.SQL(" AND ").join(
            sql.SQL("{} = {}").format(sql.Identifier(column.name), sql.Literal(value))
            for column, value in zip(self._columns, self._row, strict=True)
            if column.is_key
        )

    def delete(self) -> None:
        """Remove it."""
        self._db.execute(sql.SQL("DELETE FROM {} WHERE {}").format(self._table, self._is_it))

    def change(self) -> str:
        """Change its last text that is no key, else its last number. Return the name of the column."""
        texts = [column for column in self._columns if column.type == "text" and not column.is_key]
        numbers = [column for column in self._columns if "int" in column.type and not column.is_key]
        column = (texts or numbers)[-1].name
        changed = sql.SQL("{} || ' '" if texts else "coalesce({}, 0) + 1").format(sql.Identifier(column))
        statement = sql.SQL("UPDATE {} SET {} = {} WHERE {}")
        self._db.execute(statement.format(self._table, sql.Identifier(column), changed, self._is_it))
        return column

    def mend(self) -> None:
        """Let it be as it was."""
        self.delete()
        values = sql.SQL(", ").join(sql.Literal(value) for value in self._row)
        self._db.execute(sql.SQL("INSERT INTO {} VALUES ({})").format(self._table, values))


def _status(stack: SmallStack) -> int:
    """Exit status of `koord verify`."""
    return stack.koord.status("verify")


def _damage_each_table(stack: SmallStack) -> list[str]:
    """Return what was not noticed."""
    unnoticed: list[str] = []
    with psycopg.connect(stack.dsn, autocommit=True) as db:
        for table in READ_BY_PEOPLE:
            row = Row(db, table)
            row.delete()
            if _status(stack) == 0:
                unnoticed.append(f"a deleted row of {table}")
            row.mend()
            column = row.change()
            if _status(stack) == 0:
                unnoticed.append(f"a changed {column} of {table}")
            row.mend()
        assert "equal" in stack.koord.run("verify")
    return unnoticed


async def test_verify_notices_a_changed_and_a_deleted_row_of_each_table() -> None:
    with var_folder() as var:
        async with small_stack(var) as stack:
            for _ in range(3):
                await stack.load.submit()
            await stack.settled()
            unnoticed = await asyncio.to_thread(_damage_each_table, stack)
    assert unnoticed == []
