"""How a command starts: its own options and those of all commands, its databases, its ledger entry.

Every command has the options ``--keys`` and ``--json``. The help lists them last, unless the command
declares ``keys`` itself.

If the ring file names a ledger, commands with `Command.events` are recorded: a begin entry is written before
the command runs, and the exit code at the end. A command does not run if its begin entry cannot be written.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain
from time import monotonic
from typing import Annotated, Any, Final, get_type_hints

import typer

from sealpoint.admin.cli.frame import Command, Run
from sealpoint.admin.cli.options import (
    RANGE,
    DatabasesArgument,
    JsonOption,
    KeysOption,
    VariablesOption,
    all_databases,
    find_ring,
    find_threads,
    require_whole,
    shard_of,
)
from sealpoint.admin.results.exits import Exit
from sealpoint.admin.results.jobs import Check
from sealpoint.errors import RingFileMissingError, excerpt
from sealpoint.keys.entry import DATABASE_CHECK, RELATION_CHECK
from sealpoint.keys.ringfile import RingFile

_FOR_ONE: Final = ("thread", "threads", "pin", "emit")  # options that apply to one database only
_PLURAL: Final = {"database": DatabasesArgument, "variable": VariablesOption}
_CHECKS: Final = {"no_database_check": DATABASE_CHECK, "allow_unrelated": RELATION_CHECK}


def framed(command: str, row: Command, callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that typer calls; its parameters are the command's options and common options."""
    signature = inspect.signature(callback, eval_str=True)
    first, *others = signature.parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in others if is_dataclass(each.annotation)}
    # In the order of the help: --db-env, which replaces DB, stands last.
    flat = sorted(chain(*map(_parameters, others)), key=lambda each: each.name == "variable")
    own = [parameter.name for parameter in flat]

    def grouped(run: Run, **options: Any) -> None:
        for name, kind in groups.items():
            given = {each.name for each in fields(kind)} & options.keys()
            options[name] = kind(**{each: options.pop(each) for each in given})
        callback(run, **options)

    def call(context: typer.Context, **options: Any) -> Exit:
        run: Run = context.obj
        run.command, run.keys, run.as_json = command, options["keys"], options["as_json"]
        run.asks()
        if row.is_sharded:
            run.works_on(shard_of(command, *(options[name] for name in RANGE)))
        if row.begins_later:
            run.begin = partial(_begin, run, row, options)
        elif row.events and options.get("apply", True):  # a plan changes nothing: no ledger entry
            _begin(run, row, options)
        asked = {name: options[name] for name in own}
        if row.takes_several:
            _run_each(run, grouped, asked)
        else:
            grouped(run, **asked)
        return run.code

    kind = inspect.Parameter.KEYWORD_ONLY
    more = {name: Annotated[str | None, option] for name, option in RANGE.items() if row.is_sharded}
    plural = _PLURAL if row.takes_several else {}
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
    """Return the parameter in a list; of a dataclass of options, return one parameter for each field."""
    if not is_dataclass(group.annotation):
        return [group]
    hints = get_type_hints(group.annotation, include_extras=True)
    return [
        group.replace(name=each.name, annotation=hints[each.name], default=each.default)
        for each in fields(group.annotation)
    ]


def _run_each(run: Run, callback: Callable[..., Any], options: dict[str, Any]) -> None:
    """Run a command on each database that the command line names, or else that the ring file lists."""
    arguments, variables = options.pop("database") or (), options.pop("variable", None) or ()
    all_databases(arguments, variables)  # refuses a password and an unset variable
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
                f"this option applies to one database, and there are {len(places)}", param_hint=f"--{name}"
            )
    if options.get("no_threads") is False and find_ring(run) and find_threads(None, run.keys):
        raise typer.BadParameter(
            "the thread store of the ring file is of one database: name that database, or add --no-threads",
            param_hint="DB...",
        )
    until = monotonic() + (options.get("max_seconds") or 0)

    def work(place: dict[str, str], part: Run) -> None:
        if options.get("max_seconds") is not None:
            options["max_seconds"] = max(0.0, until - monotonic())
        callback(part, **options, **place)

    run.run_each([(name, partial(work, place)) for name, place in places])


def _begin(run: Run, row: Command, options: Mapping[str, Any], documents: Sequence[bytes] = ()) -> None:
    """Write the begin entry of a run to the ledger, if there is a ledger, and prepare the end entry."""
    try:
        ring = RingFile(run.ring_file)
    except RingFileMissingError:
        # The ring is optional, but if --keys names a missing file, refuse: the file might name a ledger.
        if row.needs_no_ring and (run.keys is not None or os.environ.get("SEALPOINT_KEYS")):
            raise
        return
    if ring.ledger is None:
        return
    from sealpoint.admin.evidence.recorder import Act, Recorder

    act = Act(row.events[0], row.events[-1], _subject(ring, options), _waived(options), documents)
    recorder = Recorder(ring, ring.ledger, run.result, act)
    recorder.begin()
    run.recorder = recorder


def _subject(ring: RingFile, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the subject of a ledger entry: the databases, keys, thread and output file of the command."""
    subject: dict[str, Any] = {}
    if databases := _databases(ring, options):
        subject["database"] = databases
    key_ids = ["index"] if options.get("index") else _given(options, "key_id", "key_ids")
    if key_ids or "key_id" in options:
        subject["key"] = ", ".join(excerpt(key_id)[1:-1] for key_id in key_ids) or None
    if options.get("wrapper") is not None:
        subject["wrapper"] = excerpt(options["wrapper"])[1:-1]
    if options.get("of_run") is not None:
        subject["run"] = options["of_run"]
    if options.get("thread") is not None:
        from sealpoint.admin.evidence.erasure import hmac_of

        subject["thread"] = hmac_of(ring)(options["thread"])
    for place in ("out", "out_schema"):
        if options.get(place) is not None:
            subject["out"] = str(options[place])
    return subject


def _databases(ring: RingFile, options: Mapping[str, Any]) -> list[str]:
    """Return the databases of a command, as the command line names them or the ring file lists them."""
    arguments = _given(options, "database", "databases")
    named = [
        *all_databases(arguments, None),
        *(f"${name}" for name in _given(options, "variable", "variables")),
    ]
    if "key_id" in options:  # a key transition examines the ring file's, too
        return named if options.get("no_database_check", True) else [*named, *ring.databases]
    return named or (list(ring.databases) if {"database", "databases"} & options.keys() else [])


def _given(options: Mapping[str, Any], *names: str) -> list[str]:
    found = [options[name] for name in names if options.get(name) is not None]
    return [str(each) for one in found for each in (one if isinstance(one, list | tuple) else [one])]


def _waived(options: Mapping[str, Any]) -> list[str]:
    """Return names of the checks that options skip, e.g. ``database-check`` for ``--no-database-check``."""
    found = []
    for name, value in options.items():
        prefix, _, what = name.partition("_")
        if (value is True or type(value) is str) and prefix in {"allow", "no"}:  # text: the user's reason
            found.append(_CHECKS.get(name, what.replace("_", "-")))
        elif isinstance(value, Check) and value is not Check.ALL:
            found.append(f"{name}-{value.value}")
    return sorted(found)
