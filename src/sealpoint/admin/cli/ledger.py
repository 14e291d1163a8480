"""`sealpoint ledger`: create, show and verify the ledger of the ring file, and prove an entry."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sealpoint.admin.cli.frame import HEAD_LABEL, Run
from sealpoint.admin.cli.options import AllowUnprovenOption, read_entries
from sealpoint.admin.cli.output import Document, complain, count, put, say, show_table
from sealpoint.admin.evidence.folder import Folder, open_regular, read_lines, read_members
from sealpoint.admin.evidence.note import MAX_BYTES, VerifierKey
from sealpoint.admin.evidence.recorder import create_ledger
from sealpoint.admin.evidence.verify import Verdict, make_proof, verify_ledger
from sealpoint.admin.results.reasons import Reason
from sealpoint.errors import LedgerMissingError, LedgerTamperedError, excerpt
from sealpoint.keys.entry import LedgerTable
from sealpoint.keys.ringfile import RingFile

MAX_SHOWN: Final = 100_000
_SHOWN: Final = {"pin": "root", "previous": "vkey"}  # of a JSON object, show this member

GROUP: Final = {
    "help": "Create, show and verify the ledger, a signed log of commands.",
    "epilog": "The ledger records changes to keys and databases; see docs/evidence.md. Without --ledger,"
    " commands use the ledger of [ledger] in the ring file.",
}

LedgerOption = Annotated[
    Path | None, typer.Option("--ledger", metavar="DIR", help="Folder of the ledger; no ring file is read.")
]
PinsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--pin",
        metavar="FILE",
        help="An earlier head, kept elsewhere: a copy of the ledger's file `checkpoint`, or the line"
        " that commands print. Can be repeated.",
    ),
]
VkeyOption = Annotated[
    str | None,
    typer.Option(
        "--vkey", metavar="KEY", help="The verifier key that `ledger init` printed, or a file with it."
    ),
]


def init(
    run: Run,
    vkey: Annotated[
        str | None,
        typer.Option("--vkey", metavar="KEY", help="Verifier key, if the signer is a command."),
    ] = None,
    previous: Annotated[
        Path | None,
        typer.Option("--previous", metavar="DIR", help="Folder of the ledger that this one continues."),
    ] = None,
) -> None:
    """Create the ledger that [ledger] in the ring file configures.

    If the file of the signing key does not exist, a new key is written to it. Prints the verifier key: give
    this key to readers by another channel than the ledger.
    """
    ring = RingFile(run.ring_file)
    table = _require_table(ring)
    read_entries(run, run.ring_file)
    head, made = create_ledger(table, ring, run.result, vkey=vkey, previous=previous)
    key = Folder(table.folder).read_key()
    run.end(
        {"folder": str(table.folder), "vkey": str(key), "head": head.line},
        lambda _: put(str(key)),
        verdict=False,
    )
    if made is not None:
        say(f"{made} contains the signing key: accounts that run agents must not be able to read it.")
    say("The line above is the verifier key: keep it where the ledger's account cannot write.")
    say(f"{HEAD_LABEL}{head.line}")


def show(
    run: Run,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=MAX_SHOWN, help="Maximum entries to show.")
    ] = 20,
    folder: LedgerOption = None,
) -> None:
    """Show the last entries of the ledger, without verifying them."""
    files = Folder(find_folder(run, folder))
    run.result.add(Reason.NOT_ASKED)
    files.require()
    with open_regular(files.entries) as stream:
        lines = deque(enumerate(read_lines(stream, 1 << 62)), limit)
    try:
        entries = [read_members(line, seq) for seq, line in lines]
    except LedgerTamperedError as error:
        raise LedgerTamperedError(f"the ledger in {files.path} cannot be parsed: {error}") from None
    left_out = lines[0][0] if lines else 0
    columns = ("seq", "at", "event", "outcome", "exit", "account", "subject")
    run.end(
        {"folder": str(files.path), "entries": entries, "left_out": left_out},
        lambda _: show_table(columns, [_row(entry) for entry in entries]),
    )
    if left_out:
        say(f"showing the last {len(entries)} of {left_out + len(entries)} entries; --limit shows more")


def _row(entry: dict[str, Any]) -> list[object]:
    actor = entry["actor"]
    account = f"{actor.get('account') or actor.get('uid')}@{actor.get('host')}"
    named = [(name, value) for name, value in entry["subject"].items() if value is not None]
    subject = "; ".join(_subject_text(name, value) for name, value in named)
    return [*(entry[name] for name in ("seq", "at", "event", "outcome", "exit")), account, subject or None]


def _subject_text(name: str, value: object) -> str:
    if isinstance(value, dict) and name in _SHOWN:
        value = value.get(_SHOWN[name])
    texts = value if isinstance(value, list) else [value]
    return f"{name} " + ", ".join(excerpt(str(text))[1:-1] for text in texts)


def verify(
    run: Run,
    pins: PinsOption = None,
    vkey: VkeyOption = None,
    allow_unproven: AllowUnprovenOption = False,
    folder: LedgerOption = None,
) -> None:
    """Verify the ledger: signature, entries, and earlier heads.

    Without --vkey, the ledger could be from another signer; without --pin, its last entries could be missing:
    the result is then not proven. Exits with 3 if the result is not proven, or refuted.
    """
    path = find_folder(run, folder)
    verdict = check_ledger(path, vkey, pins)
    run.result.add(*verdict.reasons)
    head = verdict.checkpoint
    run.end(
        {
            "folder": str(path),
            "vkey": str(verdict.key),
            "head": head and head.line,
            "entries": head.size if head else 0,
            "pins": verdict.pins,
            "documents": verdict.documents,
            "unended": verdict.unended,
            "problems": list(verdict.problems),
        },
        _show_verification,
        allow_unproven=allow_unproven,
    )
    complain_of(verdict)


def check_ledger(folder: Path, vkey: str | None, pins: Sequence[Path] | None) -> Verdict:
    """Verify a ledger with the verifier key of --vkey and the earlier heads of --pin."""
    key = None if vkey is None else read_key(vkey)
    return verify_ledger(folder, key, [read_pin_file(pin, "--pin") for pin in pins or ()])


def complain_of(verdict: Verdict) -> None:
    """Print the problems of a ledger as errors."""
    for problem in verdict.problems:
        complain(problem, LedgerTamperedError.hint)


def _show_verification(document: Document) -> None:
    put(f"signed by: {document['vkey']}" if document["head"] else "the ledger has no valid head")
    put(
        f"entries: {document['entries']}, matching pins: {document['pins']},"
        f" unchanged documents: {document['documents']}"
    )
    count(document["unended"], "runs with a begin entry but no end entry: {}")


def prove(
    run: Run,
    seq: Annotated[int, typer.Argument(metavar="SEQ", min=0, help="Number of the entry.")],
    folder: LedgerOption = None,
) -> None:
    """Print the proof that an entry is in the ledger.

    With the proof and the verifier key, a reader can check the line of the entry. The format is C2SP
    tlog-proof, which other tools read.
    """
    run.result.add(Reason.NOT_ASKED)
    path = find_folder(run, folder)
    line, proof = make_proof(path, seq)
    text = bytes(proof).decode()
    run.end(
        {"folder": str(path), "entry": line.decode("ascii", "backslashreplace"), "proof": text},
        lambda _: print(text, end=""),
    )


def _require_table(ring: RingFile) -> LedgerTable:
    if ring.ledger is None:
        raise LedgerMissingError(
            f"{ring.origin.path} names no ledger",
            hint="add [ledger] with dir and origin to the ring file, then create the ledger:"
            " sealpoint ledger init",
        )
    return ring.ledger


def find_folder(run: Run, folder: Path | None) -> Path:
    """Return the folder of a ledger: ``folder`` if given, else the ledger of the ring file."""
    return folder or _require_table(RingFile(run.ring_file)).folder


def read_key(text: str) -> VerifierKey:
    """Parse a verifier key, given as text or as the name of a file."""
    if "+" not in text:
        if not os.path.lexists(text):
            raise typer.BadParameter(
                f"{excerpt(text)} is neither a file nor a key in the form NAME+ID+KEY", param_hint="--vkey"
            )
        text = read_file(Path(text), "--vkey").decode(errors="replace").strip()
    return VerifierKey.parse(text)


def read_pin_file(file: Path, option: str) -> bytes:
    """Read a pin of a ledger: a copy of its file ``checkpoint``, or the head's line that commands print."""
    return read_file(file, option).removeprefix(HEAD_LABEL.encode())


def read_file(file: Path, option: str) -> bytes:
    """Read at most ``MAX_BYTES + 1`` bytes of the file that an option names; refuse an unreadable file."""
    try:
        with file.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint=option) from None
