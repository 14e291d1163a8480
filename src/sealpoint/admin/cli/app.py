"""The program `sealpoint`: the table of its commands, and the exit code of a run."""

from __future__ import annotations

import sys
import traceback
from collections import UserDict
from collections.abc import Mapping, Sequence
from functools import cache
from pkgutil import resolve_name
from typing import Annotated, Any, Final

import rich  # noqa: F401 -- tables and bars import it later; here a missing package is reported at once
import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from sealpoint.admin.cli.frame import Command, Run, explain
from sealpoint.admin.cli.output import discard_rest, is_read, prepare_streams, require_command, say
from sealpoint.admin.results.exits import Exit

_INTERRUPTED: Final = 130  # the exit code that typer returns after Ctrl-C

# Help lists commands in this order, first steps first; a group stands before its commands.
TABLE: Final[Mapping[str, Command]] = {
    "keys": Command("keys:GROUP", "Show the keys of a ring, and change their states."),
    "keys init": Command("keys:init", "Create a ring file with one new, active key.", ("ring.create",)),
    "keys generate": Command(
        "keys:generate", "Add a staged key: it opens values, but does not seal yet.", ("key.stage",)
    ),
    "keys list": Command("keys:list_keys", "Show all keys, destroyed ones too. No key material is needed."),
    "keys check": Command("keys:check", "Compare all keys with their check values; test all wrappers."),
    "keys show": Command("keys:show", "Show all fields of a key, and its transitions."),
    "keys promote": Command(
        "keys:promote", "Make a key active. The previously active key becomes decrypt-only.", ("key.promote",)
    ),
    "keys disable": Command(
        "keys:disable", "Disable a decrypt-only key: values under it are refused.", ("key.disable",)
    ),
    "keys enable": Command("keys:enable", "Let a disabled key open values again.", ("key.enable",)),
    "keys compromise": Command(
        "keys:compromise", "Mark a key as compromised: it opens values, but seals none.", ("key.compromise",)
    ),
    "keys destroy": Command(
        "keys:destroy",
        "Destroy a key: remove its key file. This cannot be undone, and the id is never reused.",
        ("key.destroy",),
    ),
    "keys wrap": Command(
        "keys:wrap", "Wrap the key of a key file, and remove the file. Rows do not change.", ("key.wrap",)
    ),
    "keys rewrap": Command(
        "keys:rewrap", "Unwrap keys and wrap them again. Rows do not change.", ("key.rewrap",)
    ),
    "init": Command("init:init", "Create a ring, examine a database, and show how to seal it.", ("init",)),
    "status": Command(
        "status:status",
        "Show what is sealed under which key, and what is not. Needs no key, and reads no value.",
        is_sharded=True,
    ),
    "rotate": Command(
        "rotate:rotate",
        "Reseal every value under the active key, while agents run. Shows the plan; --apply carries it out.",
        ("rotate.begin", "rotate.end"),
        takes_several=True,
        is_sharded=True,
    ),
    "rebind": Command(
        "rotate:rebind",
        "Bind every row to its place, while agents run. Shows the plan; --apply carries it out.",
        ("rebind.begin", "rebind.end"),
        takes_several=True,
        is_sharded=True,
    ),
    "scrub": Command(
        "rotate:scrub", "Erase remains of old values from a SQLite file.", ("scrub",), takes_several=True
    ),
    "decrypt": Command("decrypt:decrypt", "Write a decrypted copy of a database.", ("decrypt",)),
    "verify": Command(
        "verify:verify",
        "Open every value, and list the values that do not open. No value is shown.",
        ("verify",),
        takes_several=True,
        is_sharded=True,
    ),
    "audit": Command(
        "status:audit",
        "Show what is readable without a key. No value is shown, only its shape, such as aaa-99.",
        takes_several=True,
    ),
    "report": Command("report:report", "Answer an assessor's questions on one page.", ("report",)),
    "erase": Command(
        "erase:erase",
        "Delete threads, and namespaces of LangGraph's Store.",
        ("erase.begin", "erase.end"),
        begins_later=True,
    ),
    "erasures": Command(
        "erase:erasures",
        "Show erasures, and the keys that must still be destroyed.",
        ("erase.again",),
        begins_later=True,
    ),
    "shards": Command("shards:shards", "Divide the threads of a Postgres database into ranges."),
    "merge": Command("shards:merge", "Combine the results of all ranges of a run into one verdict."),
    "types": Command(
        "inspect:types",
        "Count the Python types named in values. No type is imported, and no value is shown.",
        takes_several=True,
    ),
    "trial": Command("inspect:trial", "Decode every value as an agent would; list threads that fail."),
    "inspect": Command(
        "inspect:inspect",
        "Show the values of one thread, or items, as plain data. No type is imported; long values are cut.",
        ("inspect",),
    ),
    "heads": Command("verify:GROUP", "Maintain the thread store, a log of checkpoints that must exist."),
    "heads adopt": Command(
        "verify:adopt", "Record a database's checkpoints in the thread store as correct.", ("heads.adopt",)
    ),
    "heads seal": Command(
        "verify:seal",
        "Print a pin: one hash over all events of a thread store.",
        ("heads.seal",),
        needs_no_ring=True,
    ),
    "heads trim": Command(
        "verify:trim",
        "Remove records of checkpoints that were deleted before a date.",
        ("heads.trim",),
        needs_no_ring=True,
    ),
    "ledger": Command("ledger:GROUP", "Create, show and verify the ledger, a signed log of commands."),
    "ledger init": Command("ledger:init", "Create the ledger that [ledger] in the ring file configures."),
    "ledger show": Command("ledger:show", "Show the last entries of the ledger, without verifying them."),
    "ledger verify": Command("ledger:verify", "Verify the ledger: signature, entries, and earlier heads."),
    "ledger prove": Command("ledger:prove", "Print the proof that an entry is in the ledger."),
}
GROUPS: Final = frozenset(name.partition(" ")[0] for name in TABLE if " " in name)
COMMANDS: Final = TABLE.keys() - GROUPS
EVENTS: Final = {name: row.events for name, row in TABLE.items() if row.events}
SEVERAL: Final = frozenset(name for name, row in TABLE.items() if row.takes_several)


class _Built(UserDict[str, Any]):
    """Maps words of the command line to the commands of a group, which are built when they are looked up."""

    def __getitem__(self, word: str) -> Any:
        return _build(self.data[word])


@cache
def _build(name: str) -> Any:
    """Build one click command or group. Building all of them would take longer than most commands run."""
    word, row = name.rpartition(" ")[2], TABLE[name]
    found = resolve_name(f"{__package__}.{row.function}")
    if name in GROUPS:
        made = typer.Typer(
            name=word, cls=Commands, callback=require_command, invoke_without_command=True, **_PLAIN, **found
        )
    else:
        from sealpoint.admin.cli.call import framed

        made = typer.Typer(**_PLAIN)
        made.command(word)(framed(name, row, found))
    return get_command(made)


_PLAIN: Final[Mapping[str, Any]] = {"add_completion": False, "rich_markup_mode": None}


class Commands(TyperGroup):
    """A click group that imports only the command that runs; exits with 7 if the pipe of stdout is closed."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        group = "" if self.name == PROGRAM else self.name
        self._names = {
            word: name for name in TABLE for before, _, word in [name.rpartition(" ")] if before == group
        }
        self.commands: Any = _Built(self._names)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in this group."""
        return [*self._names]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a stand-in for a command, with its one-line help: enough for the list of commands."""
        name = self._names.get(cmd_name)
        return name and TyperCommand(cmd_name, help=TABLE[name].line, rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of the command, the command, and its remaining arguments."""
        word, _, rest = super().resolve_command(ctx, args)
        return word, word and self.commands[word], rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command; if stdout is a pipe whose reader has closed it, exit with 7."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            discard_rest(sys.stdout)
            raise typer.Exit(Exit.STOPPED) from None


PROGRAM: Final = "sealpoint"
app = typer.Typer(
    name=PROGRAM,
    cls=Commands,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="To seal a database, begin with `sealpoint init`. To see what a database contains, begin"
    " with `sealpoint status DB`, which needs no key.\n\n"
    "Exit codes: 0 done, 2 usage or configuration, 3 a check found something, 4 a row failed to open,"
    " 5 keys not available, 6 another run holds the database, 7 stopped early, can be run again, 1 a bug.",
)


@app.callback()
def sealpoint(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Manage the keys of sealed LangGraph checkpoints, and rotate, verify and examine databases."""
    if show_version:
        from importlib.metadata import version

        print(f"sealpoint {version('sealpoint')}")
        raise typer.Exit
    require_command(context)


@cache
def program() -> Any:
    """Return the program as a click command, built once."""
    return get_command(app)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command, print how it ended, and return the exit code.

    Args:
        arguments: The words of the command line after the program's name; default: those of this process.
    """
    prepare_streams()
    words = sys.argv[1:] if arguments is None else list(arguments)
    # The name of the command, for the JSON object of a run that fails before it begins.
    names = [word for word in words if not word.startswith("-")]
    name = " ".join(names[: 2 if names and names[0] in GROUPS else 1])
    this = Run(name if name in COMMANDS else PROGRAM)
    code = this.finish(_run(this, words))
    try:
        if code and "--json" in words:
            this.require_object()
        is_read()
    except OSError:  # disk full, as reported; a flush by the interpreter would end in code 120
        discard_rest(sys.stdout)
    return code


def _run(this: Run, words: Sequence[str]) -> int:
    try:
        # In its standalone mode click ends the process itself: an aborted prompt would exit with 1.
        code = program()(args=words, prog_name=PROGRAM, standalone_mode=False, obj=this) or Exit.DONE
        if code == _INTERRUPTED:
            say("ended by Ctrl-C; the same command can be run again")
            code = Exit.STOPPED
        # Flush stdout here: if the flush fails only at the interpreter's exit, the exit code is 120.
        if not is_read():  # replaces only the exit code 0
            return code or Exit.STOPPED
    except Exception as error:  # noqa: BLE001 -- the end of the program, which reports every error
        return _report(this, error, words)
    return code


def _report(this: Run, error: Exception, words: Sequence[str]) -> Exit:
    if isinstance(error, typer.Abort):  # a prompt got no answer
        return Exit.STOPPED
    if isinstance(error, BrokenPipeError):
        discard_rest(sys.stdout)
        return Exit.STOPPED
    code, text, hint = explain(error, this.command)
    if code is not Exit.BUG:
        from sealpoint.admin.cli.options import PasswordNamedError

        if isinstance(error, PasswordNamedError):
            hint = error.hint_for(words)
        return this.fail(code, text, hint)
    for line in "".join(traceback.format_exception(error)).splitlines():  # no values of variables
        say(line)
    return this.fail(code, "this is a bug in sealpoint", "report it with the lines above")
