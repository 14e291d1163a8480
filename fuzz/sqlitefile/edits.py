"""Structural edits of a database file, as an attacker who can write it makes them.

Each edit takes the pages and the choices that say where and what. What does not fit is a
`FormatError`, and leaves a file that is edited in part: that is hostile, too.
"""

# ruff: noqa: S608 -- statements of an attacker, put together on purpose

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fuzz.sqlitefile.choices import Choices
from fuzz.sqlitefile.format import (
    FIELDS,
    INDEX_INTERIOR,
    INDEX_LEAF,
    INTERIOR,
    SCHEMA_ROOT,
    TABLE_INTERIOR,
    Cell,
    FormatError,
    SqliteFile,
    Value,
    decode_record,
    encode_record,
    read_varint,
    write_varint,
)

Edit = Callable[[SqliteFile, Choices], None]
Entry = tuple[int, bytes]

TABLES: Final = ("checkpoints", "writes")
TYPE, NAME, TABLE_NAME, ROOT, SQL = range(5)
LOOT: Final = "loot"
"""The table that forged triggers write to, so that it shows that one ran."""

_COLUMNS: Final = {
    "checkpoints": ("thread_id", "checkpoint_ns", "checkpoint_id", "", "type", "checkpoint", "metadata"),
    "writes": (
        *("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "task_path", "idx", "channel"),
        *("type", "value"),
    ),
}
_ACTS: Final = (
    "INSERT INTO loot VALUES ('ran')",
    "DELETE FROM writes",
    "DELETE FROM checkpoints",
    "UPDATE writes SET value = x'c0'",
    "UPDATE checkpoints SET type = 'msgpack', checkpoint = x'80'",
    "INSERT INTO writes SELECT 't', '', 'c', 't', '', 0, 'c', 'msgpack', x'c0'",
    "SELECT RAISE(IGNORE)",
    "SELECT count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n)",
)
_EVENTS: Final = (
    "AFTER UPDATE ON",
    "AFTER INSERT ON",
    "AFTER DELETE ON",
    "BEFORE UPDATE ON",
    "BEFORE INSERT ON",
    "BEFORE DELETE ON",
    "INSTEAD OF UPDATE ON",
)
_CLAUSES: Final = (
    ("checkpoint_id TEXT", "checkpoint_id TEXT COLLATE NOCASE"),
    ("thread_id TEXT", "thread_id TEXT COLLATE RTRIM"),
    ("metadata BLOB", "metadata BLOB, CHECK (length(type) > 0)"),
    ("value BLOB", "value BLOB CHECK (type <> 'x')"),
    ("type TEXT", "type TEXT GENERATED ALWAYS AS ('msgpack')"),
    ("type TEXT", "type TEXT DEFAULT (random())"),
    ("type TEXT", "type TEXT UNIQUE ON CONFLICT REPLACE"),
    ("parent_checkpoint_id TEXT", "parent_checkpoint_id TEXT REFERENCES writes ON DELETE CASCADE"),
    ("idx INTEGER", "idx INTEGER -- "),
    ("checkpoint BLOB", "metadata_ BLOB"),
    ("PRIMARY KEY (thread_id, checkpoint_ns,", "PRIMARY KEY (checkpoint_ns, thread_id,"),
    ("CREATE TABLE checkpoints", "CREATE TABLE CHECKPOINTS"),
    ("CREATE TABLE writes", "CREATE VIEW writes AS SELECT 1; --"),
    ("CREATE TABLE", "CREATE TEMP TABLE"),
    ("))", ")) WITHOUT ROWID"),
    ("))", ")) STRICT"),
)
_INDEXED: Final = (
    "type",
    "type, checkpoint",
    "type, value",
    "thread_id, type",
    "thread_id",
    "metadata",
    "channel",
    "length(type)",
    "zeroblob(600000000)",
    "checkpoint_id COLLATE NOCASE",
    "type DESC",
)


# --- the schema -------------------------------------------------------------------------------


def schema(file: SqliteFile) -> list[tuple[int, list[Value]]]:
    """Return the rows of the schema: row id and columns."""
    return [(row_id, decode_record(payload)) for row_id, payload in file.entries(SCHEMA_ROOT)]


def write_schema(file: SqliteFile, rows: list[tuple[int, list[Value]]]) -> None:
    """Write the rows of the schema, and say that it has changed."""
    file.write_tree(SCHEMA_ROOT, [(row_id, encode_record(row)) for row_id, row in rows], is_table=True)
    file.set_field("schema cookie", file.get_field("schema cookie") + 1)


def add_schema_row(file: SqliteFile, *row: Value) -> None:
    """Add a row to the schema."""
    rows = schema(file)
    write_schema(file, [*rows, (max((number for number, _ in rows), default=0) + 1, list(row))])


def add_loot(file: SqliteFile) -> None:
    """Add the table that triggers write to."""
    if any(row[NAME] == LOOT for _, row in schema(file)):
        return
    root = file.append()
    file.write_tree(root, [], is_table=True)
    add_schema_row(file, "table", LOOT, LOOT, root, "CREATE TABLE loot (a)")


def root_of(file: SqliteFile, name: str) -> int:
    """Return the root page of a table or index.

    Raises:
        FormatError: If there is none.
    """
    for _, row in schema(file):
        root = row[ROOT]
        if row[NAME] == name and isinstance(root, int):
            return root
    raise FormatError(f"no {name} in the schema")


def disguises(name: str) -> tuple[Value, ...]:
    """Return what SQLite takes for a text, and a comparison does not."""
    return name.encode(), f"{name}\0", f"{name}\0x", name.upper(), f" {name}", "", None, name


def forge_column(file: SqliteFile, choices: Choices) -> None:
    """Change one column of one row of the schema."""
    rows = schema(file)
    _, row = choices.one(rows)
    column = choices.number(5)
    if column == ROOT:
        now = row[ROOT]
        root = now if isinstance(now, int) else 0
        roots: list[Value] = [str(root).encode(), str(root), float(root), None, 0, 1, -root, root + 2**32]
        row[ROOT] = choices.one(roots)
    elif column == SQL:
        _forge_statement(row, choices)
    else:
        row[column] = choices.one(disguises(str(row[column])))
    write_schema(file, rows)


def _forge_statement(row: list[Value], choices: Choices) -> None:
    sql = row[SQL]
    if isinstance(sql, str) and choices.flag():
        before, after = choices.one(_CLAUSES)
        row[SQL] = sql.replace(before, after, 1)
    else:
        row[SQL] = choices.one(disguises(str(sql)))


def hide_trigger(file: SqliteFile, choices: Choices) -> None:
    """Add a trigger, in a row of the schema that may not look like one."""
    add_loot(file)
    table, event, act = choices.one(TABLES), choices.one(_EVENTS), choices.one(_ACTS)
    kind, tbl_name = choices.one(disguises("trigger")), choices.one(disguises(table))
    statement = f"CREATE TRIGGER evil {event} {table} BEGIN {act}; END"
    sql: Value = statement.encode() if choices.flag() else statement
    add_schema_row(file, kind, "evil", tbl_name, 0, sql)


def add_object(file: SqliteFile, choices: Choices) -> None:
    """Add a view, or a further table of a name that is taken."""
    table = choices.one(TABLES)
    root = choices.one([0, 0, root_of(file, table), file.append()])
    sql = choices.one(
        [
            f"CREATE VIEW {table} AS SELECT * FROM loot",
            f"CREATE VIEW evil AS SELECT * FROM {table}",
            f"CREATE TABLE {table} (a, b)",
            f"CREATE VIRTUAL TABLE {table} USING fts4(a)",
            "CREATE TABLE sqlite_stat1 (tbl, idx, stat)",
            f"CREATE TABLE evil AS SELECT * FROM {table}",
        ]
    )
    kinds: list[Value] = ["view", "table", b"view", b"table", "index"]
    kind = choices.one(kinds)
    add_schema_row(file, kind, choices.one([table, "evil", "sqlite_stat1"]), table, root, sql)


def drop_row(file: SqliteFile, choices: Choices) -> None:
    """Take a row out of the schema."""
    rows = schema(file)
    rows.remove(choices.one(rows))
    write_schema(file, rows)


def share_roots(file: SqliteFile, choices: Choices) -> None:
    """Swap two root pages, or let one thing stand on the page of another."""
    rows = schema(file)
    _, one = choices.one(rows)
    _, other = choices.one(rows)
    if choices.flag():
        one[ROOT], other[ROOT] = other[ROOT], one[ROOT]
    else:
        one[ROOT] = other[ROOT]
    write_schema(file, rows)


# --- indexes ----------------------------------------------------------------------------------


def shuffled(entries: list[Entry], choices: Choices) -> list[Entry]:
    """Return entries that disagree with what they were."""
    half = entries[: len(entries) // 2]
    first = entries[:1] * len(entries)
    return choices.one([[], entries[::-1], half, [*entries, *entries], first, entries[1:]])


def forge_key(file: SqliteFile, choices: Choices) -> None:
    """Let the index of a primary key disagree with its table."""
    root = root_of(file, f"sqlite_autoindex_{choices.one(TABLES)}_1")
    file.write_tree(root, shuffled(file.entries(root), choices), is_table=False)


def add_index(file: SqliteFile, choices: Choices) -> None:
    """Add an index, whose entries need not be those of the table."""
    table, columns = choices.one(TABLES), choices.one(_INDEXED)
    names = [part.split()[0] for part in columns.split(", ")]
    entries = []
    for row_id, payload in file.entries(root_of(file, table)):
        row = dict(zip(_COLUMNS[table], decode_record(payload), strict=False))
        entries.append((0, encode_record([*(row.get(name) for name in names), row_id])))
    root = file.append()
    file.write_tree(root, shuffled(entries, choices) if choices.flag() else entries, is_table=False)
    unique, where = choices.one(["", "UNIQUE "]), choices.one(["", " WHERE type IS NOT NULL"])
    sql = f"CREATE {unique}INDEX evil ON {table} ({columns}){where}"
    kinds: list[Value] = ["index", b"index"]
    names_of_table: list[Value] = [table, table.encode(), f"{table}\0"]
    add_schema_row(file, choices.one(kinds), "evil", choices.one(names_of_table), root, sql)


# --- trees ------------------------------------------------------------------------------------


def _tree(file: SqliteFile, choices: Choices) -> int:
    """Return the root of one of the trees that there are."""
    roots = [row[ROOT] for _, row in schema(file)]
    return choices.one([SCHEMA_ROOT, *(root for root in roots if isinstance(root, int) and root > 0)])


def _cell(file: SqliteFile, choices: Choices) -> tuple[int, Cell]:
    """Return a cell, and the number of its page."""
    number = choices.one(list(file.walk(_tree(file, choices))))
    cells = list(file.cells(number))
    if not cells:
        raise FormatError("a page without cells")
    return number, choices.one(cells)


def fold(file: SqliteFile, choices: Choices) -> None:
    """Make a tree a DAG: on each of some new levels all children are the same page."""
    name = choices.one([*TABLES, *(f"sqlite_autoindex_{table}_1" for table in TABLES)])
    make_dag(file, root_of(file, name), 2 + choices.number(40), 1 + choices.number(12))


def make_dag(file: SqliteFile, root: int, fan: int, levels: int) -> None:
    """Put new levels above the pages of a tree; each interior page has ``fan`` times the same child."""
    if root == SCHEMA_ROOT:
        raise FormatError("page 1 stays where it is")
    kind = TABLE_INTERIOR
    divider = write_varint(2**62)
    if file.kind(root) in (INDEX_INTERIOR, INDEX_LEAF):
        kind, divider = INDEX_INTERIOR, file.leaf_cell(encode_record(["z", "", "z", 1]), None)
    child = file.append(bytes(file.page(root)))
    for level in range(levels):
        number = root if level == levels - 1 else file.append()
        file.write_node(number, kind, [child.to_bytes(4, "big") + divider] * (fan - 1), child)
        child = number


def turn_back(file: SqliteFile, choices: Choices) -> None:
    """Let a child of an interior page be its root, itself or another page."""
    root = _tree(file, choices)
    pages = list(file.walk(root))
    inner = [number for number in pages if file.kind(number) in INTERIOR]
    if not inner:
        raise FormatError("a tree of one page")
    number = choices.one(inner)
    child = choices.one([root, number, 1 + choices.number(len(file.pages)), *pages]).to_bytes(4, "big")
    page, at = file.page(number), file.header_at(number) + 8
    cells = list(file.cells(number))
    place = choices.number(len(cells) + 1)
    start = at if place == len(cells) else cells[place].start
    page[start : start + 4] = child


def mislead(file: SqliteFile, choices: Choices) -> None:
    """Let an inner page have other keys than its children, or children twice or in another order."""
    root = root_of(file, choices.one(TABLES))
    inner = [number for number in file.walk(root) if file.kind(number) == TABLE_INTERIOR]
    number = choices.one(inner)
    keys = [cell.row_id for cell in file.cells(number)]
    children = [*(cell.child for cell in file.cells(number)), file.right_child(number)]
    how, place = choices.number(3), choices.number(len(keys))
    if how == 0:
        keys = [max(key - 1 - choices.number(8), 0) for key in keys]
    elif how == 1:
        children.insert(place, children[place])
        keys.insert(place, choices.one([0, keys[place], *keys]))
    else:
        other = choices.number(len(children))
        children[place], children[other] = children[other], children[place]
    cells = [
        child.to_bytes(4, "big") + write_varint(key) for child, key in zip(children[:-1], keys, strict=True)
    ]
    file.write_node(number, TABLE_INTERIOR, cells, children[-1])


def loop_chain(file: SqliteFile, choices: Choices) -> None:
    """Let an overflow chain go in a circle, into a tree, or into another chain."""
    chains = [
        cell
        for number in file.walk(root_of(file, choices.one(TABLES)))
        for cell in file.cells(number)
        if cell.overflow
    ]
    cell = choices.one(chains)
    pages = list(file.chain(cell))
    other = choices.one([pages[0], choices.one(chains).overflow, 1 + choices.number(len(file.pages)), 0])
    file.page(choices.one(pages))[:4] = other.to_bytes(4, "big")


def forge_cell(file: SqliteFile, choices: Choices) -> None:
    """Change the size, the row id or a serial type of a cell."""
    number, cell = _cell(file, choices)
    page, at = file.page(number), cell.start
    if file.kind(number) in INTERIOR:
        at += choices.one([0, 4])
    if choices.flag():
        _, at = read_varint(page, at)
    if choices.flag():
        _, at = read_varint(page, at)
        at += choices.number(10)
    if at < len(page):
        page[at] = choices.one([0, 10, 11, 0x7F, 0x80, 0xFF, page[at] ^ 1, page[at] + 1 & 0xFF])


def forge_rows(file: SqliteFile, choices: Choices) -> None:
    """Write a table anew with other rows: doubled, in another order, with other tags or values."""
    table = choices.one(TABLES)
    root = root_of(file, table)
    entries = file.entries(root)
    how = choices.number(3)
    if how == 0:
        entries = shuffled(entries, choices)
    elif how == 1:
        entries = [(choices.one([0, 1, row_id, -1, 2**63 - 1]), payload) for row_id, payload in entries]
    else:
        place = choices.number(len(entries))
        row_id, payload = entries[place]
        row = decode_record(payload)
        value: list[Value] = [b"msgpack", "msgpack", "msgpack+cobblestone256@k1", "x+\0@k2", 7, None, 1.5]
        row[choices.number(len(row))] = choices.one([*value, b"", "\udcff", "x" * 3000])
        entries[place] = row_id, encode_record(row)
    file.write_tree(root, entries, is_table=True)


# --- pages, the free list, the header ---------------------------------------------------------


def free_live_pages(file: SqliteFile, choices: Choices) -> None:
    """Let the free list hold pages that are in use."""
    leaves = [1 + choices.number(len(file.pages)) for _ in range(1 + choices.number(4))]
    if choices.flag():
        file.set_field("first free page", leaves[0])
    else:
        content = b"".join(number.to_bytes(4, "big") for number in (0, len(leaves), *leaves))
        file.set_field("first free page", file.append(content))
    file.set_field("free pages", choices.one([len(leaves), len(leaves) + 1, 0, 2**31]))


def forge_header(file: SqliteFile, choices: Choices) -> None:
    """Change a field of the header."""
    field = choices.one(list(FIELDS))
    now = file.get_field(field)
    file.set_field(field, choices.one([0, 1, 2, 3, now + 1, now - 1, 7, 32, 255, 2**31, 2**32 - 1]))


def forge_page_size(file: SqliteFile, choices: Choices) -> None:
    """Let the header say another page size than the pages have."""
    file.pages[0][16:18] = choices.one([512, 1024, 4096, 1, 0, 513]).to_bytes(2, "big")


def move_pages(file: SqliteFile, choices: Choices) -> None:
    """Swap two pages, or put the content of one over another."""
    one, other = choices.number(len(file.pages)), choices.number(len(file.pages))
    if choices.flag():
        file.pages[one], file.pages[other] = file.pages[other], file.pages[one]
    else:
        file.pages[one][:] = file.pages[other]


def flip_bytes(file: SqliteFile, choices: Choices) -> None:
    """Change a few bytes of a page."""
    page = file.pages[choices.number(len(file.pages))]
    for _ in range(1 + choices.number(3)):
        page[choices.number(len(page))] ^= 1 + choices.number(255)


def flip_head(file: SqliteFile, choices: Choices) -> None:
    """Change a byte of a b-tree header, or one of the first cell pointers."""
    number = 1 + choices.number(len(file.pages))
    at = file.header_at(number) + choices.number(20)
    file.page(number)[at] = choices.number(256)


def cut(file: SqliteFile, choices: Choices) -> None:
    """Take pages off the end; the header may say so."""
    del file.pages[max(1, len(file.pages) - 1 - choices.number(len(file.pages))) :]
    if choices.flag():
        file.set_field("page count", len(file.pages))
    elif choices.flag():
        file.set_field("version valid for", file.get_field("change counter") + 1)


EDITS: Final[tuple[Edit, ...]] = (
    hide_trigger,
    forge_column,
    add_index,
    forge_key,
    fold,
    share_roots,
    turn_back,
    loop_chain,
    forge_cell,
    forge_rows,
    free_live_pages,
    forge_header,
    cut,
    flip_bytes,
    flip_head,
    move_pages,
    add_object,
    drop_row,
    forge_page_size,
    mislead,
)
"""All edits; a byte of the input says which."""
