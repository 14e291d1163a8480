"""What all commands have in common: result, exit code, confirmation, errors and end entry in the ledger.

A command is a function of its `Run` and its options. It passes options that can weaken its answer ``ok`` to
`Run.asks`, does its work, and calls `Run.end` with JSON members and a function that prints them as text.
"""

from __future__ import annotations

import json
import secrets
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from sealpoint.admin.cli import output
from sealpoint.admin.cli.output import Document
from sealpoint.admin.results.exits import Exit, exit_code, message, result_code, worst
from sealpoint.admin.results.jobs import Stop
from sealpoint.admin.results.reasons import Reason, applying
from sealpoint.admin.results.result import Database, Result
from sealpoint.errors import ConfigError, SealpointError, StoppedError

if TYPE_CHECKING:
    from sealpoint.admin.evidence.recorder import Recorder
    from sealpoint.admin.results.shards import Shard

HEAD_LABEL: Final = "ledger head: "
UNASKED: Final = "--yes skips the confirmation prompt"
_USAGE_ERROR: Final[Any] = typer.BadParameter.__bases__[0]  # click's UsageError; typer does not export it
_OUTCOMES: Final = {
    Exit.DONE: "done",
    Exit.BUG: "failed",
    Exit.STOPPED: "stopped",
    Exit.FOUND: "found",
    Exit.UNOPENED: "found",
}


class Command(NamedTuple):
    """A command, or a group of commands, in the table of the program.

    Attributes:
        function: Function of the command, or help texts of the group: ``module:name`` in this package.
        line: First line of the help, also shown in lists of commands.
        events: Names of the begin and end entries in the ledger; empty for a command that is not recorded.
        takes_several: Whether the command line may name several databases; each has a run of its own.
        is_sharded: Whether the command can work on a range of threads.
        begins_later: Whether the command writes its begin entry to the ledger itself, after its first checks.
        needs_no_ring: Whether the command also runs without a ring file; it is then not recorded in a ledger.
    """

    function: str
    line: str
    events: tuple[str, ...] = ()
    takes_several: bool = False
    is_sharded: bool = False
    begins_later: bool = False
    needs_no_ring: bool = False


class Run:
    """One run of one command, from its command line to its exit code.

    Attributes:
        command: Name of the command.
        keys: Path of the ring file, as given by ``--keys``.
        as_json: Whether ``--json`` was given.
        result: The `Result`: options, examined databases, and reasons so far why ``ok`` is not true.
        code: Exit code.
        recorder: Object that writes the end entry to the ledger; ``None`` if the command is not recorded.
        begin: Function that writes the begin entry to the ledger; set only if `Command.begins_later` is.
        is_stopping: Whether a signal has asked the run to end.
        shard: Range of threads to work on; ``None`` for the whole database.
        errors: Errors of databases that could not be examined, in a run over several databases.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self.keys: Path | None = None
        self.as_json = False
        self.result = Result(command)
        self.code = Exit.DONE
        self.recorder: Recorder | None = None
        self.begin: Callable[[Sequence[bytes]], None] = lambda _: None
        self.is_stopping = False
        self.errors: list[dict[str, str]] = []
        self.shard: Shard | None = None
        self._codes: list[Exit] = []
        self._digest = sha256()  # of the JSON object
        self._part: Document = {}
        self._has_object = False
        self._error: dict[str, str] | None = None
        output.name_database(None)

    @property
    def ring_file(self) -> Path:
        """The path of the ring file: that of ``--keys``, or the first that exists in the default places."""
        from sealpoint.keys.ringfile import find_ring_file

        return find_ring_file(self.keys)

    def asks(self, **options: Any) -> None:
        """Put into the result the options that can weaken its answer ``ok``, with their values."""
        if self.shard is not None:  # the ledger's JSON file has no other mark of the range
            options["run"] = self.shard.run
        run, self.result = self.result.run, Result(self.command, options)
        self.result.run = run

    def finds(self, reasons: Mapping[Reason, object]) -> None:
        """Add to the result the reasons why ``ok`` is not true: those whose conditions are true."""
        self.result.add(*applying(reasons))

    def works_on(self, shard: Shard | None) -> None:
        """Set the range of threads. A salt prevents guesses of thread ids from the digest in a ledger."""
        self.shard, salt = shard, secrets.token_hex(16)
        self._part = {} if shard is None else {"shard": {**shard._asdict(), "salt": salt}}

    def looks_at(self, store: Database) -> None:
        """Note that a database is examined, so that the first members of the JSON object describe it."""
        self._part = {**self._part, **self.result.looks_at(store)}

    def head(self) -> dict[str, Any]:
        """Return the first members of the JSON object."""
        return {**self.result.head(), **self._part}

    def end(
        self,
        members: Document,
        show: Callable[[Document], None],
        *,
        allow_unproven: bool = True,
        verdict: bool = True,
    ) -> None:
        """Print the result as a JSON object or as text, and set the exit code.

        Args:
            members: The command's own members of the JSON object.
            show: Prints the members as text.
            allow_unproven: Whether a result that is not proven exits with 0 instead of 3.
            verdict: Whether the text ends with a line such as ``ok`` or ``not ok: ...``.
        """
        document = self.result.document({**self._part, **members})
        if self.as_json:
            self.print_object(json.dumps(document, indent=2))
        else:
            show(document)
            if verdict:
                output.show_verdict(document)
        self.set_code(allow_unproven=allow_unproven)

    def set_code(self, *, allow_unproven: bool) -> None:
        """Set the exit code that the reasons of the result lead to."""
        found = result_code(self.result, unproven=Exit.DONE if allow_unproven else Exit.FOUND)
        self.code = worst([found, *self._codes])

    @contextmanager
    def sparing(self, database: str) -> Iterator[None]:
        """Print an error of the ``with`` block on one database, and let the run continue with the others."""
        try:
            yield
        except BrokenPipeError:  # the pipe of stdout is closed
            raise
        except Exception as error:
            code, text, hint = explain(error, self.command)
            if code is Exit.BUG:
                raise
            self._codes.append(code)
            self.result.add(Reason.NOT_COMPLETED)
            self.fail(code, text if database in text else f"{database}: {text}", hint)
            self.errors.append({"database": output.printable(database), **(self._error or {})})

    def run_each(self, databases: Sequence[tuple[str, Callable[[Run], None]]]) -> None:
        """Run a command on each database in a run of its own; the exit code is the worst of these runs."""
        head, left = self.head(), len(databases)
        if self.as_json:
            opening = json.dumps({name: head[name] for name in _FIRST})
            self.print_object(f'{opening[:-1]}, "databases": [')
        try:
            for name, command in databases:
                left -= 1
                self._run_part(name, command)
                if not self.as_json:
                    output.put("")
                elif left:
                    self.print_object(",")
        finally:  # complete the JSON object that was begun on stdout
            self.finds({Reason.NOT_COMPLETED: left})
            document = self.result.document({"errors": self.errors})
            if self.as_json:
                rest = json.dumps({name: document[name] for name in document if name not in _FIRST})
                self.print_object(f"{', null' * left}], {rest[1:]}")
            else:
                output.show_verdict(document)
        self.code = worst(self._codes)

    def _run_part(self, name: str, command: Callable[[Run], None]) -> None:
        part = Run(self.command)
        part.keys, part.as_json, part.result.run = self.keys, self.as_json, self.result.run
        if not self.as_json:
            output.put(f"{name}:")
        try:
            with self.sparing(name):
                if self.is_stopping:
                    raise StoppedError("not examined: a signal ended the run", hint="run the command again")
                command(part)
                self._codes.append(part.code)
        finally:
            self.is_stopping = self.is_stopping or part.is_stopping
            self.result.join(part.result)
            if self.as_json and not part._has_object:
                self.print_object("null")

    def print_object(self, text: str, end: str = "\n") -> None:
        """Print a JSON object, or the next part of one."""
        self._has_object = True
        self._digest.update(output.print_object(text, end))

    def fail(self, code: Exit, text: str, hint: str = "") -> Exit:
        """Print an error and its hint, and return the exit code of the run."""
        text, hint = output.printable(output.filled(text)), output.printable(output.filled(hint))
        self._error = {"message": text, "hint": hint}
        output.complain(text, hint)
        return code

    def confirm(self, what: str, key_id: str | None = None, *, hint: str = UNASKED) -> None:
        """Ask for confirmation before an irreversible step, and end the command unless the user confirms.

        The user types ``key_id``, or else ``yes``. Without a terminal the command fails.
        """
        if not sys.stdin.isatty():
            text = "there is no terminal to ask for confirmation"
            raise ConfigError(text if key_id else f"{what}: {text}", hint=hint)
        output.say(f"{what}. To confirm, type {'the id of the key' if key_id else 'yes'}:")
        if sys.stdin.readline().strip() != (key_id or "yes"):
            output.say("Nothing was done.")
            raise typer.Exit(Exit.STOPPED)

    def finish(self, code: int) -> int:
        """Write the end entry of a recorded command to the ledger, and print the new head of the ledger.

        Returns the exit code of the command, or if the command succeeded but its end entry cannot be written,
        the exit code of this error.
        """
        if self.recorder is None:
            return code
        result = self.result if self.result.has_ended else None
        if self.shard is not None and self._has_object:
            self.result.stated = {"result": f"sha256:{self._digest.hexdigest()}"}
        outcome = _OUTCOMES.get(Exit(code), "refused")
        if outcome == "refused" and len(self._codes) > len(self.errors):  # other databases may have changed
            outcome = "stopped"
        try:
            head = self.recorder.end(outcome if result or outcome != "found" else "refused", code, result)
        except SealpointError as error:
            text = f"the command has ended, but its end is not in the ledger: {message(error)}"
            return code or self.fail(exit_code(error), text, error.hint)
        output.say(f"{HEAD_LABEL}{head.line}")
        return code

    def require_object(self) -> None:
        """Print a JSON object with the error alone, unless ``--json`` has already printed an object."""
        if not self._has_object:
            self.asks()
            self.result.add(Reason.NOT_COMPLETED)
            self.print_object(json.dumps(self.result.document({"error": self._error}), indent=2))


def explain(error: Exception, command: str) -> tuple[Exit, str, str]:
    """Return the exit code of an error, its message and its hint."""
    if isinstance(error, _USAGE_ERROR):
        wrong: Any = error
        path = (
            " ".join(dict.fromkeys(("sealpoint", command))) if wrong.ctx is None else wrong.ctx.command_path
        )
        return Exit.USAGE, wrong.format_message(), f"see `{path} --help`"
    return exit_code(error), message(error), getattr(error, "hint", "")


_FIRST: Final = ("schema", "command")  # the first members of every JSON object
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopping(run: Run) -> Iterator[Stop]:
    """Let Ctrl-C, SIGTERM or SIGHUP stop a run after its batch; a second signal stops it at once.

    A third signal does nothing, so that temporary files are still removed. An ignored signal, such as SIGHUP
    under nohup, stays ignored.
    """
    stop, ending = Stop(), False

    def ask(number: int, _: object) -> None:
        nonlocal ending
        if stop.is_set():
            if ending:
                return
            ending = True
            raise KeyboardInterrupt
        stop.set()
        run.is_stopping = True
        output.say(f"{signal.Signals(number).name}: ending after this batch; a second signal ends at once")

    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, ask) for number in heard}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
