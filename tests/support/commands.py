"""``make commands``: writes docs/commands.md, the text of ``--help`` of every command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sealpoint.admin.cli.app import program

PAGE: Final = Path(__file__).parents[2] / "docs" / "commands.md"
WIDTH: Final = 100

INTRODUCTION: Final = """\
# Command reference

What `--help` prints for each command. `make commands` writes this page, and a test fails if it differs.
[Results](results.md) has the exit codes, and the JSON of every command.
"""


def helps(command: Any, name: str, parent: Any = None) -> Iterator[tuple[str, str]]:
    """Yield the name and the help of a command, and of all commands in it, in their order."""
    context = command.context_class(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        **command.context_settings,
    )
    yield context.command_path, command.get_help(context)
    if hasattr(command, "commands"):
        for each in command.list_commands(context):
            yield from helps(command.commands[each], each, context)


def render() -> str:
    """Return the page."""
    found = helps(program(), "sealpoint")
    return INTRODUCTION + "".join(f"\n## {path}\n\n```text\n{text.rstrip()}\n```\n" for path, text in found)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
