"""Recording: what commands do, in the ledger that the ring file names. Without one nothing happens here.

`recorded` wraps each command that is recorded: before it runs, its beginning is in the ledger, or it does not
run. `finish` records its exit code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sealpoint.cli.databases import all_databases
from sealpoint.cli.exits import Exit, exit_code, message
from sealpoint.cli.output import complain, say
from sealpoint.errors import KeyRingError, RingFileMissingError, SealpointError, excerpt
from sealpoint.keys.entry import DATABASE_CHECK, RELATION_CHECK
from sealpoint.keys.key import keyed_hash
from sealpoint.keys.ring import KeyRing
from sealpoint.keys.ringfile import RingFile, find_ring_file
from sealpoint.maintenance.options import Check
from sealpoint.maintenance.result import Result, collected

if TYPE_CHECKING:
    from sealpoint.evidence.recorder import Act, Recorder

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

_running: Final[list[Recorder]] = []
"""The recorder of the command that runs, if it is recorded."""


def recorded(command: str, callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that is recorded when it runs, if it is one of `EVENTS`.

    Args:
        command: Its name, such as ``keys promote``.
        callback: Called with the options of a command line.
    """
    if command not in EVENTS:
        return callback

    @wraps(callback)
    def run(**options: Any) -> Any:
        _running.clear()
        if options.get("apply", True):  # a plan changes nothing
            _begin(command, options)
        return callback(**options)

    return run


def finish(code: int) -> int:
    """Record how a command has ended, if it is recorded, and print the new head.

    Args:
        code: The exit code of the command.

    Returns:
        That code; or, of a command that was done and whose end cannot be recorded, that of this problem.
    """
    if not _running:
        return code
    recorder = _running.pop()
    results = [result for result in collected()[1:] if result.has_ended]
    outcome = _OUTCOMES.get(Exit(code), "refused")
    try:
        head = recorder.end(
            outcome if results or outcome != "found" else "refused", code, results[-1] if results else None
        )
    except SealpointError as error:
        complain(f"the command has ended, and that is not recorded: {message(error)}", error.hint)
        return code or exit_code(error)
    say(f"{HEAD_LABEL}{head.line}")
    return code


def _begin(command: str, options: Mapping[str, Any]) -> None:
    ring = _find_ring(command, options.get("keys") or options.get("path"))
    if ring is None or ring.ledger is None:
        return
    from sealpoint.evidence.recorder import Act, Recorder

    begin, end = EVENTS[command]
    act: Act = Act(begin, end, _subject(ring, options), _waived(options))
    runs = collected()
    recorder = Recorder(ring, ring.ledger, runs[0] if runs else Result(command), act)
    recorder.begin()
    _running.append(recorder)


def _find_ring(command: str, path: Path | None) -> RingFile | None:
    """Return the ring file of a command line; ``None`` if there is none.

    Raises:
        KeyRingError: If it is not valid, or a command that needs no ring names one that is missing: it may
            name a ledger, and the command would not be recorded there.
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
