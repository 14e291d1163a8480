"""The frame of commands: what every run has around what its command asks, finds and shows.

A command is a function of its `Run` and its options. It states its question with `Run.asks`, works, and ends
with `Run.end`, which is given the members of its object and how they are shown as text.
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
UNASKED: Final = "use --yes to do it without being asked"
_USAGE_ERROR: Final[Any] = typer.BadParameter.__bases__[0]  # typer brings it, and does not export it
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
        function: What runs it, as ``module:name`` in this package; of a group its texts.
        line: The first line of its help, which lists show.
        events: In the ledger, if it is recorded: when it begins, and when it has ended.
        takes_several: Whether it is written for one database and takes several.
        is_sharded: Whether it can work on a range of threads.
        begins_later: Whether it records its beginning itself, when it knows what it will do.
        needs_no_ring: Whether it needs no ring although it is recorded.
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
        command: Its name.
        keys: The ring file that its command line names.
        as_json: Whether it prints an object.
        result: What it was asked and has found.
        code: What it ends with.
        recorder: Records its end in the ledger.
        begin: Records its beginning, with documents, if it is a command that does so itself.
        is_stopping: Whether a signal has asked it to end.
        shard: The range of threads that it works on; ``None`` for all of a database.
        errors: Of the databases that could not be examined, beside others.
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
        self._digest = sha256()  # of the object
        self._part: Document = {}
        self._has_object = False
        self._error: dict[str, str] | None = None
        output.name_database(None)

    @property
    def ring_file(self) -> Path:
        """The path of the ring file that the command line names, or of the first that is found."""
        from sealpoint.keys.ringfile import find_ring_file

        return find_ring_file(self.keys)

    def asks(self, **options: Any) -> None:
        """State the question: the options that can weaken what the run shows, with their values."""
        if self.shard is not None:  # in the ledger's document nothing else says so
            options["run"] = self.shard.run
        run, self.result = self.result.run, Result(self.command, options)
        self.result.run = run

    def finds(self, reasons: Mapping[Reason, object]) -> None:
        """Record why the result is not true: the reasons whose conditions hold."""
        self.result.add(*applying(reasons))

    def works_on(self, shard: Shard | None) -> None:
        """Work on a range of threads. The ledger has a digest of the object: the salt hides guessed ids."""
        self.shard, salt = shard, secrets.token_hex(16)
        self._part = {} if shard is None else {"shard": {**shard._asdict(), "salt": salt}}

    def looks_at(self, store: Database) -> None:
        """Record the one database of the command, which its object begins with."""
        self._part = {**self._part, **self.result.looks_at(store)}

    def head(self) -> dict[str, Any]:
        """Return what the object begins with."""
        return {**self.result.head(), **self._part}

    def end(
        self,
        members: Document,
        show: Callable[[Document], None],
        *,
        allow_unproven: bool = True,
        verdict: bool = True,
    ) -> None:
        """Print what was found as an object or as text, and set the exit code.

        Args:
            members: The members of the object that are the command's own.
            show: Prints the object as text.
            allow_unproven: Whether a result that is not proven ends with 0, and not with 3.
            verdict: Whether the text ends with the line of the verdict.
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
        """Set the exit code for what was found."""
        found = result_code(self.result, unproven=Exit.DONE if allow_unproven else Exit.FOUND)
        self.code = worst([found, *self._codes])

    @contextmanager
    def sparing(self, database: str) -> Iterator[None]:
        """Report an error of one of several databases, of which the others are examined all the same."""
        try:
            yield
        except BrokenPipeError:  # of stdout
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
        """Run a command on databases, by their names, each in a run of its own; end with the worst code."""
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
        finally:  # what was begun on stdout is one object
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
                    raise StoppedError("not begun, because a signal ended the run", hint="run it again")
                command(part)
                self._codes.append(part.code)
        finally:
            self.is_stopping = self.is_stopping or part.is_stopping
            self.result.join(part.result)
            if self.as_json and not part._has_object:
                self.print_object("null")

    def print_object(self, text: str, end: str = "\n") -> None:
        """Print an object, or the next part of one."""
        self._has_object = True
        self._digest.update(output.print_object(text, end))

    def fail(self, code: Exit, text: str, hint: str = "") -> Exit:
        """Print an error and what to do about it, and return the code that the run ends with."""
        text, hint = output.printable(output.filled(text)), output.printable(output.filled(hint))
        self._error = {"message": text, "hint": hint}
        output.complain(text, hint)
        return code

    def confirm(self, what: str, key_id: str | None = None, *, hint: str = UNASKED) -> None:
        """Ask before a key, or something else, is given up, and end the command unless it is agreed to.

        Without a terminal the command fails. A key is named by its command line, anything else by the error.
        """
        if not sys.stdin.isatty():
            text = "there is no terminal to ask for confirmation"
            raise ConfigError(text if key_id else f"{what}: {text}", hint=hint)
        output.say(f"{what}. To confirm, type {'its id' if key_id else 'yes'}:")
        if sys.stdin.readline().strip() != (key_id or "yes"):
            output.say("Nothing was done.")
            raise typer.Exit(Exit.STOPPED)

    def finish(self, code: int) -> int:
        """Record how a command has ended, if it is recorded, and print the new head of the ledger.

        Returns the exit code; or, of a command that was done and whose end cannot be recorded, that of this
        problem.
        """
        if self.recorder is None:
            return code
        result = self.result if self.result.has_ended else None
        if self.shard is not None and self._has_object:
            self.result.stated = {"result": f"sha256:{self._digest.hexdigest()}"}
        outcome = _OUTCOMES.get(Exit(code), "refused")
        if outcome == "refused" and len(self._codes) > len(self.errors):  # others may have been changed
            outcome = "stopped"
        try:
            head = self.recorder.end(outcome if result or outcome != "found" else "refused", code, result)
        except SealpointError as error:
            text = f"the command has ended, and that is not recorded: {message(error)}"
            return code or self.fail(exit_code(error), text, error.hint)
        output.say(f"{HEAD_LABEL}{head.line}")
        return code

    def require_object(self) -> None:
        """Print an object with the error alone, unless one was printed: ``--json`` always gives one."""
        if not self._has_object:
            self.asks()
            self.result.add(Reason.NOT_COMPLETED)
            self.print_object(json.dumps(self.result.document({"error": self._error}), indent=2))


def explain(error: Exception, command: str) -> tuple[Exit, str, str]:
    """Return the exit code of an error, its text, and what to do about it."""
    if isinstance(error, _USAGE_ERROR):
        wrong: Any = error
        path = (
            " ".join(dict.fromkeys(("sealpoint", command))) if wrong.ctx is None else wrong.ctx.command_path
        )
        return Exit.USAGE, wrong.format_message(), f"see `{path} --help`"
    return exit_code(error), message(error), getattr(error, "hint", "")


_FIRST: Final = ("schema", "command")  # the members that every object begins with
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopping(run: Run) -> Iterator[Stop]:
    """Let Ctrl-C, SIGTERM and SIGHUP end a run between two batches; a second one ends it where it is.

    A third one does nothing, so that temporary files are still removed. A signal that is ignored, as
    SIGHUP is under nohup, is still ignored.
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
        output.say(f"{signal.Signals(number).name}: ending after this batch; once more ends at once")

    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, ask) for number in heard}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
