"""The program: its commands, and how each of them begins, is recorded and ends.

The options ``--keys`` and ``--json`` are of the frame: a command without ``keys`` among its options has them
at the end.

A command of `EVENTS` is recorded in the ledger that the ring file names, if it names one: before the command
runs, its beginning is in the ledger, or it does not run. Its exit code is recorded at the end.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from importlib.metadata import version
from time import monotonic
from typing import Annotated, Any, Final, get_type_hints

import typer
from typer.core import TyperGroup
from typer.main import get_command

from sealpoint.admin.cli import decrypt, erase, init, keys, ledger, report, rotate, status, verify
from sealpoint.admin.cli import inspect as values
from sealpoint.admin.cli import shards as ranges
from sealpoint.admin.cli.exits import Exit
from sealpoint.admin.cli.frame import Run, explain
from sealpoint.admin.cli.options import (
    RANGE,
    DatabasesArgument,
    JsonOption,
    KeysOption,
    PasswordNamedError,
    VariablesOption,
    all_databases,
    find_ring,
    find_threads,
    require_whole,
    shard_of,
)
from sealpoint.admin.cli.output import discard_rest, is_read, prepare_streams, require_command, say
from sealpoint.admin.maintenance.result import Check
from sealpoint.errors import RingFileMissingError, excerpt
from sealpoint.keys.entry import DATABASE_CHECK, RELATION_CHECK
from sealpoint.keys.ringfile import RingFile

_INTERRUPTED: Final = 130  # what typer makes of Ctrl-C


class Commands(TyperGroup):
    """Lists its commands in the order of a beginner, and ends early if its output is no longer read."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, those of `keys` first."""
        return sorted(super().list_commands(ctx), key=lambda name: name != "keys")

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
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="To seal a database, begin with `sealpoint init`. To see what a database contains, begin"
    " with `sealpoint status DB`, which needs no key.\n\n"
    "Exit codes: 0 done, 2 usage or configuration, 3 a check found something, 4 a row failed to open,"
    " 5 keys not available, 6 another run holds it, 7 stopped early and safe to run again, 1 a bug.",
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
    init.init,
    status.status,
    rotate.rotate,
    rotate.rebind,
    rotate.scrub,
    decrypt.decrypt,
    verify.verify,
    status.audit,
    report.report,
    erase.erase,
    erase.erasures,
    ranges.shards,
    ranges.merge,
    values.types,
    values.trial,
    values.inspect,
):
    app.command()(command)
GROUPS: Final = {"heads": verify.heads, "keys": keys.app, "ledger": ledger.app}
for name, group in GROUPS.items():
    app.add_typer(group, name=name)


# The events of each command that is recorded: when it begins, and when it has ended.
EVENTS: Final[Mapping[str, tuple[str, str]]] = {
    "rotate": ("rotate.begin", "rotate.end"),
    "rebind": ("rebind.begin", "rebind.end"),
    "scrub": ("scrub", "scrub"),
    "verify": ("verify", "verify"),
    "report": ("report", "report"),
    "heads adopt": ("heads.adopt", "heads.adopt"),
    "heads seal": ("heads.seal", "heads.seal"),
    "heads trim": ("heads.trim", "heads.trim"),
    "inspect": ("inspect", "inspect"),
    "decrypt": ("decrypt", "decrypt"),
    "erase": ("erase.begin", "erase.end"),
    "erasures": ("erase.again", "erase.again"),  # with a search of a database
    "init": ("init", "init"),  # of a ring that is there: a new one names no ledger yet
    "keys init": ("ring.create", "ring.create"),
    "keys generate": ("key.stage", "key.stage"),
    "keys promote": ("key.promote", "key.promote"),
    "keys disable": ("key.disable", "key.disable"),
    "keys enable": ("key.enable", "key.enable"),
    "keys compromise": ("key.compromise", "key.compromise"),
    "keys destroy": ("key.destroy", "key.destroy"),
    "keys wrap": ("key.wrap", "key.wrap"),
    "keys rewrap": ("key.rewrap", "key.rewrap"),
}

# Commands that are written for one database and take several, and the options that are for one alone.
SEVERAL: Final = frozenset({"verify", "audit", "types", "rotate", "rebind", "scrub"})
_FOR_ONE: Final = ("thread", "threads", "pin", "emit")
_PLURAL: Final = {"database": DatabasesArgument, "variable": VariablesOption}

SHARDED: Final = ("status", "verify", "rotate", "rebind")  # that can work on a range of threads

# Commands that record their beginning themselves, when they know what they will do.
_BEGINNING_LATER: Final = ("erase", "erasures")
_WITHOUT_RING: Final = ("heads seal", "heads trim")
_CHECKS: Final = {"no_database_check": DATABASE_CHECK, "allow_unrelated": RELATION_CHECK}


def framed(command: str, callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return what typer calls for a command: with its options, those of the frame, and the context."""
    signature = inspect.signature(callback, eval_str=True)
    first, *others = signature.parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in others if is_dataclass(each.annotation)}
    flat = [each for one in others for each in (_parameters(one) if one.name in groups else [one])]
    own = [parameter.name for parameter in flat]

    def grouped(run: Run, **options: Any) -> None:
        for name, kind in groups.items():
            options[name] = kind(**{each.name: options.pop(each.name) for each in fields(kind)})
        callback(run, **options)

    def call(context: typer.Context, **options: Any) -> Exit:
        run: Run = context.obj
        run.command, run.keys, run.as_json = command, options["keys"], options["as_json"]
        run.asks()
        if command in SHARDED:
            run.works_on(shard_of(command, *(options[name] for name in RANGE)))
        if command in _BEGINNING_LATER:
            run.begin = partial(_begin, run, options)
        elif command in EVENTS and options.get("apply", True):  # a plan changes nothing
            _begin(run, options)
        asked = {name: options[name] for name in own}
        if command in SEVERAL:
            _run_each(run, grouped, asked)
        else:
            grouped(run, **asked)
        return run.code

    kind = inspect.Parameter.KEYWORD_ONLY
    more = {name: Annotated[str | None, option] for name, option in RANGE.items() if command in SHARDED}
    plural = _PLURAL if command in SEVERAL else {}
    call.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            first.replace(name="context", annotation=typer.Context),
            *(
                parameter.replace(kind=kind, annotation=plural.get(parameter.name, parameter.annotation))
                for parameter in flat
            ),
            *(
                inspect.Parameter(name, kind, default=False if name == "as_json" else None, annotation=option)
                for name, option in {**more, "keys": KeysOption, "as_json": JsonOption}.items()
                if name not in own
            ),
        ]
    )
    call.__doc__, call.__name__ = callback.__doc__, callback.__name__
    return call


def _parameters(group: inspect.Parameter) -> list[inspect.Parameter]:
    """Return the parameters for which one stands whose type is a class of options."""
    hints = get_type_hints(group.annotation, include_extras=True)
    return [
        group.replace(name=each.name, annotation=hints[each.name], default=each.default)
        for each in fields(group.annotation)
    ]


def _run_each(run: Run, callback: Callable[..., Any], options: dict[str, Any]) -> None:
    """Run a command on each database that its command line names, or else that the ring file lists."""
    arguments, variables = options.pop("database") or (), options.pop("variable", None) or ()
    all_databases(arguments, variables)  # refuses a password, and a variable that is not set
    places = [(name, {"database": name}) for name in arguments]
    places += [(f"${name}", {"variable": name}) for name in variables]
    ring = None if places else find_ring(run)
    places += [(name, {"database": name}) for name in (RingFile(ring).databases if ring else ())]
    if len(places) < 2:
        callback(run, **options, **(places[0][1] if places else {}))
        return
    require_whole(run, len(places) > 1)
    if ring is not None and options.get("apply"):
        raise typer.BadParameter(
            f"name the databases to change: the ring file lists {len(places)}", param_hint="DB..."
        )
    for name in _FOR_ONE:
        if options.get(name):
            raise typer.BadParameter(
                f"it is of one database, and there are {len(places)}", param_hint=f"--{name}"
            )
    if options.get("no_threads") is False and find_ring(run) and find_threads(None, run.keys):
        raise typer.BadParameter(
            "the thread store of the ring file belongs to one database: name that one, or add --no-threads",
            param_hint="DB...",
        )
    until = monotonic() + (options.get("max_seconds") or 0)

    def work(place: dict[str, str], part: Run) -> None:
        if options.get("max_seconds") is not None:
            options["max_seconds"] = max(0.0, until - monotonic())
        callback(part, **options, **place)

    run.run_each([(name, partial(work, place)) for name, place in places])


def _begin(run: Run, options: Mapping[str, Any], documents: Sequence[bytes] = ()) -> None:
    """Record that a command begins, and let its run record the end; without a ledger do nothing."""
    try:
        ring = RingFile(run.ring_file)
    except RingFileMissingError:
        # One that needs no ring, and names one that is missing: that may name a ledger.
        if run.command in _WITHOUT_RING and (run.keys is not None or os.environ.get("SEALPOINT_KEYS")):
            raise
        return
    if ring.ledger is None:
        return
    from sealpoint.admin.evidence.recorder import Act, Recorder

    act = Act(*EVENTS[run.command], _subject(ring, options), _waived(options), documents)
    recorder = Recorder(ring, ring.ledger, run.result, act)
    recorder.begin()
    run.recorder = recorder


def _subject(ring: RingFile, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a command happens to: databases as they were named or listed, keys, a thread, a copy."""
    subject: dict[str, Any] = {}
    if databases := _databases(ring, options):
        subject["database"] = databases
    if "key_id" in options:
        key_id = "index" if options.get("index") else options["key_id"]
        subject["key"] = key_id if key_id is None else excerpt(key_id)[1:-1]
    if options.get("key_ids"):
        subject["key"] = ", ".join(excerpt(key_id)[1:-1] for key_id in options["key_ids"])
    if options.get("wrapper") is not None:
        subject["wrapper"] = excerpt(options["wrapper"])[1:-1]
    if options.get("of_run") is not None:
        subject["run"] = options["of_run"]
    if options.get("thread") is not None:
        from sealpoint.admin.evidence.recorder import hmac_of

        subject["thread"] = hmac_of(ring)(options["thread"])
    for place in ("out", "out_schema"):
        if options.get(place) is not None:
            subject["out"] = str(options[place])
    return subject


def _databases(ring: RingFile, options: Mapping[str, Any]) -> list[str]:
    """Return the databases that a command works on, as the command line and the ring file have them."""
    arguments = _given(options, "database", "databases")
    named = [
        *all_databases(arguments, None),
        *(f"${name}" for name in _given(options, "variable", "variables", "db_env")),
    ]
    if "key_id" in options:  # a transition, which examines all that are known
        return named if options.get("no_database_check", True) else [*named, *ring.databases]
    return named or (list(ring.databases) if {"database", "databases"} & options.keys() else [])


def _given(options: Mapping[str, Any], *names: str) -> list[str]:
    found = [options[name] for name in names if options.get(name) is not None]
    return [str(each) for one in found for each in (one if isinstance(one, list | tuple) else [one])]


def _waived(options: Mapping[str, Any]) -> list[str]:
    """Return the checks that options waive, e.g. ``database-check`` for ``--no-database-check``."""
    found = []
    for name, value in options.items():
        prefix, _, what = name.partition("_")
        if (value is True or type(value) is str) and prefix in {"allow", "no"}:  # a text is the reason
            found.append(_CHECKS.get(name, what.replace("_", "-")))
        elif isinstance(value, Check) and value is not Check.ALL:
            found.append(f"{name}-{value.value}")
    return sorted(found)


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
    # The command that is named, for the object of a run that does not begin.
    names = [word for word in words if not word.startswith("-")]
    name = " ".join(names[: 2 if names and names[0] in GROUPS else 1])
    this = Run(name if name in COMMANDS else "sealpoint")
    code = this.finish(_run(this, words))
    try:
        if code and "--json" in words:
            this.require_object()
        is_read()
    except OSError:  # stdout is full, which was reported; the interpreter would try again, and exit with 120
        discard_rest(sys.stdout)
    return code


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
        return _report(this, error, words)
    return code


def _report(this: Run, error: Exception, words: Sequence[str]) -> Exit:
    if isinstance(error, typer.Abort):  # the answer to a question did not come
        return Exit.STOPPED
    if isinstance(error, BrokenPipeError):
        discard_rest(sys.stdout)
        return Exit.STOPPED
    code, text, hint = explain(error, this.command)
    if code is not Exit.BUG:
        if isinstance(error, PasswordNamedError):
            hint = error.hint_for(words)
        return this.fail(code, text, hint)
    for line in "".join(traceback.format_exception(error)).splitlines():  # without values of variables
        say(line)
    return this.fail(code, "this is a bug in sealpoint", "report it with the lines above")
