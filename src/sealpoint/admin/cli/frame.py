"""The frame of commands: what every run has around what its command asks, finds and shows.

A command is a function of its `Run` and its options. It states its question with `Run.asks`, works, and ends
with `Run.end`, which is given the members of its object and how they are shown as text. The options `--keys`
and `--json` are of the frame: a command without ``keys`` among its options has them at the end.

A command of `EVENTS` is recorded in the ledger that the ring file names, if it names one: before the command
runs, its beginning is in the ledger, or it does not run. Its exit code is recorded at the end.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from sealpoint.admin.cli import output
from sealpoint.admin.cli.exits import Exit, exit_code, message, result_code
from sealpoint.admin.cli.options import JsonOption, KeysOption, all_databases
from sealpoint.admin.maintenance.result import Check, Reason, Result
from sealpoint.errors import KeyRingError, RingFileMissingError, SealpointError, excerpt
from sealpoint.keys.entry import DATABASE_CHECK, RELATION_CHECK
from sealpoint.keys.key import keyed_hash
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.ringfile import RingFile, find_ring_file

if TYPE_CHECKING:
    from sealpoint.admin.evidence.recorder import Recorder

HEAD_LABEL: Final = "ledger head: "
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
"""The events of each command that is recorded: when it begins, and when it has ended."""

_WITHOUT_RING: Final = ("heads seal", "heads trim")
_CHECKS: Final = {"no_database_check": DATABASE_CHECK, "allow_unrelated": RELATION_CHECK}
_OUTCOMES: Final = {
    Exit.DONE: "done",
    Exit.BUG: "failed",
    Exit.STOPPED: "stopped",
    Exit.FOUND: "found",
    Exit.UNOPENED: "found",
}

Document = Mapping[str, Any]
"""An object of `sealpoint.admin.maintenance.result`, or a part of one."""


class Run:
    """One run of one command, from its command line to its exit code.

    Attributes:
        result: What it was asked and has found.
        keys: The ring file that its command line names.
        as_json: Whether it prints an object.
    """

    def __init__(self, command: str) -> None:
        self.result = Result(command)
        self.keys: Path | None = None
        self.as_json = False
        self._command = command
        self._has_object = False
        self._error: dict[str, str] | None = None
        self._recorder: Recorder | None = None

    def begin(self, command: str, options: Mapping[str, Any]) -> None:
        """Begin a command with its options, and record that, if it changes or reads what is recorded."""
        self._command = command
        self.keys, self.as_json = options["keys"], options["as_json"]
        self.asks()
        if command in EVENTS and options.get("apply", True):  # a plan changes nothing
            self._recorder = _begin(command, self.result, options)

    def asks(self, **options: Any) -> None:
        """State the question: the options that can weaken what the run shows, with their values."""
        self.result = self._make_result(options)

    def _make_result(self, options: Mapping[str, Any]) -> Result:
        made = Result(self._command, options)
        made.run = self.result.run
        return made

    def end(
        self,
        members: Document,
        show: Callable[[Document], None],
        *,
        allow_unproven: bool = True,
        verdict: bool = True,
    ) -> Exit:
        """Print what was found as an object or as text, and return the exit code.

        Args:
            members: The members of the object that are the command's own.
            show: Prints the object as text.
            allow_unproven: Whether a result that is not proven ends with 0, and not with 3.
            verdict: Whether the text ends with the line of the verdict.
        """
        document = self.result.document(members)
        if self.as_json:
            self._has_object = True
            output.print_json(document)
        else:
            show(document)
            if verdict:
                output.show_verdict(document)
        return self.code(allow_unproven=allow_unproven)

    def code(self, *, allow_unproven: bool = True) -> Exit:
        """Return the exit code for what was found."""
        return result_code(self.result, unproven=Exit.DONE if allow_unproven else Exit.FOUND)

    def print_object(self, text: str, end: str = "\n") -> None:
        """Print an object, or the next part of one."""
        self._has_object = True
        output.print_object(text, end)

    def fail(self, code: Exit, text: str, hint: str = "") -> Exit:
        """Print an error and what to do about it, and return the code that the run ends with."""
        self._error = {"message": output.printable(text), "hint": output.printable(hint)}
        output.complain(text, hint)
        return code

    def confirm(self, what: str, asked: str, answer: str, *, repeat: bool = False) -> Exit | None:
        """Ask before something is given up; return how the command ends, unless it is agreed to.

        Without a terminal the command fails; the error says ``what`` again, if ``repeat``.
        """
        if not sys.stdin.isatty():
            text = f"{what}: " if repeat else ""
            text += "there is no terminal to ask for confirmation"
            return self.fail(Exit.USAGE, text, "use --yes to do it without being asked")
        output.say(f"{what}. To confirm, type {asked}:")
        if sys.stdin.readline().strip() == answer:
            return None
        output.say("Nothing was done.")
        return Exit.STOPPED

    def finish(self, code: int) -> int:
        """Record how a command has ended, if it is recorded, and print the new head of the ledger.

        Returns the exit code; or, of a command that was done and whose end cannot be recorded, that of this
        problem.
        """
        if self._recorder is None:
            return code
        recorder, self._recorder = self._recorder, None
        result = self.result if self.result.has_ended else None
        outcome = _OUTCOMES.get(Exit(code), "refused")
        try:
            head = recorder.end(outcome if result or outcome != "found" else "refused", code, result)
        except SealpointError as error:
            text = f"the command has ended, and that is not recorded: {message(error)}"
            return code or self.fail(exit_code(error), text, error.hint)
        output.say(f"{HEAD_LABEL}{head.line}")
        return code

    def require_object(self) -> None:
        """Print an object with the error alone, unless one was printed: ``--json`` always gives one."""
        if not self._has_object:
            unfinished = self._make_result({})
            unfinished.add(Reason.NOT_COMPLETED)
            output.print_json(unfinished.document({"error": self._error}))


def framed(command: str, callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return what typer calls for a command: with its options, those of the frame, and the context."""

    def call(context: typer.Context, **options: Any) -> Any:
        context.obj.begin(command, options)
        return callback(context.obj, **{name: options[name] for name in own})

    signature = inspect.signature(callback, eval_str=True)
    first, *others = signature.parameters.values()
    own = [parameter.name for parameter in others]
    kind = inspect.Parameter.KEYWORD_ONLY
    added = {"keys": KeysOption, "as_json": JsonOption}
    parameters = [
        first.replace(name="context", annotation=typer.Context),
        *(parameter.replace(kind=kind) for parameter in others),
        *(
            inspect.Parameter(name, kind, default=None if name == "keys" else False, annotation=option)
            for name, option in added.items()
            if name not in own
        ),
    ]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__doc__, call.__name__ = callback.__doc__, callback.__name__
    return call


def _begin(command: str, result: Result, options: Mapping[str, Any]) -> Recorder | None:
    """Record that a command begins, and return what records its end; ``None`` without a ledger."""
    ring = _find_ring(command, options["keys"])
    if ring is None or ring.ledger is None:
        return None
    from sealpoint.admin.evidence.recorder import Act, Recorder

    begin, end = EVENTS[command]
    act = Act(begin, end, _subject(ring, options), _waived(options))
    recorder = Recorder(ring, ring.ledger, result, act)
    recorder.begin()
    return recorder


def _find_ring(command: str, path: Path | None) -> RingFile | None:
    """Return the ring file of a command line; ``None`` if there is none.

    A command that needs no ring is refused if it names one that is missing: that may name a ledger, and the
    command would not be recorded there.
    """
    try:
        return RingFile(find_ring_file(path))
    except RingFileMissingError:
        if command in _WITHOUT_RING and (path is not None or os.environ.get("SEALPOINT_KEYS")):
            raise
        return None


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
    if options.get("thread") is not None:
        subject["thread"] = _thread(ring, options["thread"])
    for place in ("out", "out_schema"):
        if options.get(place) is not None:
            subject["out"] = str(options[place])
    return subject


def _databases(ring: RingFile, options: Mapping[str, Any]) -> list[str]:
    """Return the databases that a command works on, as the command line and the ring file have them."""
    arguments = _given(options, "database", "databases")
    variables = _given(options, "variable", "variables", "db_env")
    named = [*all_databases(arguments, None), *(f"${name}" for name in variables)]
    if "key_id" in options:  # a transition, which examines all that are known
        return named if options.get("no_database_check", True) else [*named, *ring.databases]
    takes_one = {"database", "databases"} & options.keys()
    return named or (list(ring.databases) if takes_one else [])


def _given(options: Mapping[str, Any], *names: str) -> list[str]:
    found = [options[name] for name in names if options.get(name) is not None]
    return [str(each) for one in found for each in (one if isinstance(one, list | tuple) else [one])]


def _thread(ring: RingFile, thread: str) -> str | None:
    """Return the HMAC of a thread's id under the index key; ``None`` without one."""
    try:
        key = KeyRing.load(ring.origin.path).index_key("ledger")
    except KeyRingError:
        return None
    return "hmac-sha256:" + keyed_hash(key, thread.encode("utf-8", "surrogatepass")).hex()


def _waived(options: Mapping[str, Any]) -> list[str]:
    """Return the checks that options waive, e.g. ``database-check`` for ``--no-database-check``."""
    found = []
    for name, value in options.items():
        prefix, _, what = name.partition("_")
        if value is True and prefix in {"allow", "no"}:
            found.append(_CHECKS.get(name, what.replace("_", "-")))
        elif isinstance(value, Check) and value is not Check.ALL:
            found.append(f"{name}-{value.value}")
    return sorted(found)
