"""A row that is there afterwards, whether it was before or not: one statement, so two callers never both insert."""

from collections.abc import Collection, Mapping

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


class Upsert:
    """Puts rows into one table by its primary key.

    Args:
        kept: columns that stay as they are when there is such a row.
    """

    def __init__(self, table: Table, kept: Collection[str] = ()) -> None:
        keys = [column.name for column in table.primary_key]
        changed = [column.name for column in table.columns if column.name not in (*keys, *kept)]
        on_sqlite, on_postgresql = sqlite.insert(table), postgresql.insert(table)
        self._statements = {
            "sqlite": on_sqlite.on_conflict_do_update(
                index_elements=keys, set_={name: on_sqlite.excluded[name] for name in changed}
            ),
            "postgresql": on_postgresql.on_conflict_do_update(
                index_elements=keys, set_={name: on_postgresql.excluded[name] for name in changed}
            ),
        }

    def __call__(self, connection: Connection, values: Mapping[str, object]) -> None:
        """Put a row, of which `values` has every column."""
        connection.execute(self._statements[connection.dialect.name], dict(values))
