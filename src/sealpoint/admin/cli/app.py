"""The program: its commands, and how each of them ends."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from sealpoint.admin.cli import (
    audit,
    decrypt,
    heads,
    inspect,
    keys,
    ledger,
    rebind,
    report,
    rotate,
    scrub,
    status,
    trial,
    verify,
)
from sealpoint.admin.cli import inspect as types
from sealpoint.admin.cli.exits import Exit, exit_code, message
from sealpoint.admin.cli.frame import Run, framed
from sealpoint.admin.cli.output import discard_rest, is_read, prepare_streams, require_command, say

_USAGE_ERROR: Final[Any] = typer.BadParameter.__bases__[0]  # typer brings it, and does not export it

_INTERRUPTED: Final = 130  # what typer makes of Ctrl-C

EPILOG: Final = (
    "To seal a new database, begin with `sealpoint keys init`. To see what a database contains, begin with"
    " `sealpoint status DB`, which needs no key.\n\n"
    "Exit codes: 0 done, 2 usage or configuration, 3 a check found something, 4 a row failed to open,"
    " 5 keys not available, 6 another run holds it, 7 stopped early and safe to run again, 1 a bug."
)


class Commands(TyperGroup):
    """Ends early if its output is no longer read."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            discard_rest(sys.stdout)
            raise typer.Exit(Exit.STOPPED) from None


app = typer.Typer(
    name="sealpoint",
    cls=Commands,
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=EPILOG,
)


@app.callback()
def sealpoint(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Manage the keys of sealed LangGraph checkpoints, and rotate, verify and examine databases."""
    if show_version:
        print(f"sealpoint {version('sealpoint')}")
        raise typer.Exit
    require_command(context)


for command in (
    status.status,
    rotate.rotate,
    rebind.rebind,
    scrub.scrub,
    decrypt.decrypt,
    verify.verify,
    audit.audit,
    report.report,
    types.types,
    trial.trial,
    inspect.inspect,
):
    app.command()(command)
GROUPS: Final = {"heads": heads.app, "keys": keys.app, "ledger": ledger.app}
for name, group in GROUPS.items():
    app.add_typer(group, name=name)


def _frame(group: typer.Typer, before: str = "") -> Iterator[str]:
    """Put the frame around the commands of a group, and yield the names of all."""
    for each in group.registered_commands:
        name = before + str(each.name or getattr(each.callback, "__name__", ""))
        if each.callback is not None:
            each.callback = framed(name, each.callback)
        yield name


COMMANDS: Final = frozenset(
    (*_frame(app), *(each for name, group in GROUPS.items() for each in _frame(group, f"{name} ")))
)


@cache
def program() -> Any:
    """Return the commands with their options, which are built once: that takes longer than most commands."""
    return get_command(app)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command, print how it ended, and return the exit code.

    Args:
        arguments: Without the program's name; those of the process by default.
    """
    prepare_streams()
    words = sys.argv[1:] if arguments is None else list(arguments)
    this = Run(_command_of(words))
    code = this.finish(_run(this, words))
    try:
        if code and "--json" in words:
            this.require_object()
        is_read()
    except OSError:  # stdout is full, which was reported; the interpreter would try again, and exit with 120
        discard_rest(sys.stdout)
    return code


def _command_of(words: Sequence[str]) -> str:
    """Return the command that a command line names, for the object of a run that does not begin."""
    names = [word for word in words if not word.startswith("-")]
    name = " ".join(names[: 2 if names and names[0] in GROUPS else 1])
    return name if name in COMMANDS else "sealpoint"


def _run(this: Run, words: Sequence[str]) -> int:
    try:
        # In its standalone mode click ends the process itself: an aborted question would exit with 1.
        code = program()(args=words, prog_name="sealpoint", standalone_mode=False, obj=this) or Exit.DONE
        if code == _INTERRUPTED:
            say("ended by Ctrl-C; the same command can be run again")
            code = Exit.STOPPED
        # A buffered stdout fails at the flush. Left to the interpreter's exit, that would be exit code 120.
        if not is_read():  # an exit code that reports a finding is not replaced
            return code or Exit.STOPPED
    except Exception as error:  # noqa: BLE001 -- the end of the program, which reports every error
        return _report(this, error)
    return code


def _report(this: Run, error: Exception) -> Exit:
    if isinstance(error, typer.Abort):  # the answer to a question did not come
        return Exit.STOPPED
    if isinstance(error, BrokenPipeError):
        discard_rest(sys.stdout)
        return Exit.STOPPED
    if isinstance(error, _USAGE_ERROR):
        wrong: Any = error
        path = "sealpoint" if wrong.ctx is None else wrong.ctx.command_path
        return this.fail(Exit.USAGE, wrong.format_message(), f"see `{path} --help`")
    code = exit_code(error)
    if code is not Exit.BUG:
        return this.fail(code, message(error), getattr(error, "hint", ""))
    for line in "".join(traceback.format_exception(error)).splitlines():  # without values of variables
        say(line)
    return this.fail(code, "this is a bug in sealpoint", "report it with the lines above")
