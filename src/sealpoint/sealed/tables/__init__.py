"""The tables of the wrapped saver: what is looked at before the saver is used.

What hangs on a table runs in the session of the saver that writes it: a trigger could drop or copy rows, a
view could answer with other ones. The savers of LangGraph take a schema as it comes. So it is checked here,
by the functions that `SqliteSaver` and the commands of this package use: on Postgres at the first use, on
SQLite also whenever it has changed. A change while a call runs is noticed by the next call.
"""

from sealpoint.sealed.tables.base import Tables
from sealpoint.sealed.tables.kinds import Allowed, tables_of

__all__ = ["Allowed", "Tables", "tables_of"]
