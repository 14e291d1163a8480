"""Commands that print a key: what they may do wrong, and that none of it holds up or outlives the load.

A command that should be caught by its time limit would run for minutes; nothing here waits for it.
"""

from __future__ import annotations

import json
import os
import resource
import select
import sys
from pathlib import Path

import pytest

from sealpoint.admin.evidence.note import CommandSigner, KeySigner
from sealpoint.admin.keys.wrapping import wrap_key
from sealpoint.crypto import KeyRing
from sealpoint.errors import LedgerSignerError, SourceError, SourceTimeoutError
from sealpoint.keys.sources import MAX_BYTES, run_command
from tests.support.keys.rings import NEW, OTHER, ring_text, write_ring

SHORT = 0.3  # seconds

HANGING = {
    "sleeps": "exec sleep 300",
    "closes its output and stays": "exec >&-; exec sleep 300",
    "leaves the pipe to a grandchild": "sleep 300 & echo key",
    "waits for input": "cat >/dev/null; exec sleep 300",
    "ignores polite signals": "trap '' TERM HUP INT; sleep 300; sleep 300",
}


def test_what_a_command_gets(tmp_path: Path) -> None:
    """Words, and no shell between; an empty input. What it prints is returned as it is."""
    assert run_command(["printf", r"%s\n", "a  b $HOME; *"]) == b"a  b $HOME; *\n"
    assert run_command(["cat"]) == b""


@pytest.mark.parametrize("script", HANGING.values(), ids=HANGING)
def test_command_that_hangs(script: str) -> None:
    with pytest.raises(SourceTimeoutError, match="'sh' did not end in time") as caught:
        run_command(["sh", "-c", script], timeout_seconds=SHORT)
    assert "must print the key and exit" in caught.value.hint


def test_all_that_a_command_started_is_ended(tmp_path: Path) -> None:
    """The grandchild holds a pipe open for writing: who reads it sees its end only if that is gone."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert (
        run_command(["sh", "-c", f"exec 3>'{pipe}'; echo x >&3; sleep 300 >/dev/null & echo key"]) == b"key\n"
    )
    os.set_blocking(reader, True)
    assert os.read(reader, 10) == b"x\n"
    assert select.select([reader], [], [], 30)[0], "the grandchild still runs"
    assert os.read(reader, 10) == b""
    os.close(reader)


def test_command_that_prints_without_end() -> None:
    script = f"import sys; sys.stdout.write('x' * {MAX_BYTES})"
    assert run_command([sys.executable, "-c", script]) == b"x" * MAX_BYTES
    with pytest.raises(SourceError, match=f"over {MAX_BYTES} bytes") as caught:
        run_command(["yes"])
    assert type(caught.value) is SourceError
    assert "the key and nothing else" in caught.value.hint


@pytest.mark.parametrize(
    ("argv", "problem", "hint"),
    [
        (["sh", "-c", "echo secret; echo secret >&2; exit 3", "secret"], "'sh' exited with 3", "by hand"),
        (["sh", "-c", "kill -9 $$"], "exited with -9", "by hand"),
        *(([program], "cannot be started", "") for program in ("/nowhere/at-all", "", "nul\0", "/")),
    ],
)
def test_command_that_fails(
    argv: list[str], problem: str, hint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """An argument may be a token, and what a failing tool prints may be anything: neither is shown."""
    with pytest.raises(SourceError, match=problem) as caught:
        run_command(argv)
    assert hint in caught.value.hint
    assert "secret" not in f"{caught.value!r} {caught.value} {caught.value.__notes__} {capfd.readouterr()}"


def test_process_with_many_open_files() -> None:
    """The pipe gets a number over 1023, which ``select`` would refuse."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, limits[1]))
    held = [os.dup(0) for _ in range(1024)]
    try:
        assert run_command(["echo", "key"]) == b"key\n"
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.claim("k4")
def test_command_of_a_ring(tmp_path: Path) -> None:
    text = ring_text(source=f"{{ command = ['printf', '%s', '{NEW.hex()}'] }}")
    assert KeyRing.load(write_ring(tmp_path, text)).require_active().material == NEW


# A pipe: a temporary file could reach the disk, even one without a name.
BOTH_WAYS = (
    "import os, stat, sys; text = sys.stdin.buffer.read();"
    "sys.stdout.write(str(len(text)) if stat.S_ISFIFO(os.fstat(0).st_mode) or not text else 'no pipe')"
)


@pytest.mark.parametrize("size", [0, 1, 5000, 1_000_000])
def test_input_of_any_size_arrives_whole(size: int) -> None:
    """More than a pipe takes at once, too; and a command need not read it."""
    text = b"x" * size
    assert run_command([sys.executable, "-c", BOTH_WAYS], text=text) == str(size).encode()
    assert run_command(["echo", "key"], text=text) == b"key\n"
    assert run_command(["sh", "-c", "exec <&-; echo key"], text=text) == b"key\n"


def test_command_that_reads_part_of_its_input_and_stays() -> None:
    with pytest.raises(SourceTimeoutError):
        run_command(["sh", "-c", "head -c 1 >&2; exec sleep 300"], SHORT, text=b"x" * 1_000_000)


SPY = """[ -z "${SECRET_K2-}${SECRET_INDEX-}${SECRET_OLD-}${SECRET_PIN-}${LANGGRAPH_AES_KEY-}" ] || exit 1
[ "$TOKEN" = kept ] || exit 2
"""


def test_variables_with_material_are_withheld(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From sources, wrappers and signers, whichever key they are for. Other variables are theirs."""
    for name in ("SECRET_K2", "SECRET_INDEX", "SECRET_OLD", "SECRET_PIN", "LANGGRAPH_AES_KEY"):
        monkeypatch.setenv(name, OTHER.hex())
    monkeypatch.setenv("TOKEN", "kept")
    program = ["sh", "-c", f"{SPY}exec printf {NEW.hex()}"]
    more = [
        *("[[key]]", "id = 'k2'", "state = 'staged'", "source = { env = 'SECRET_K2' }"),
        *("[[key]]", "id = 'old'", "state = 'destroyed'", "material = 'left'"),
        "source = { env = 'SECRET_OLD' }",
        *("[[index]]", "source = { env = 'SECRET_INDEX' }"),
        *("[[wrapper]]", "id = 'hsm'", "kind = 'pkcs11'", "module = 'x.so'", "token = 't'", "key = 'k'"),
        "pin = { env = 'SECRET_PIN' }",
        *("[[wrapper]]", "id = 'w'", "kind = 'command'"),
        f"wrap = {json.dumps(['sh', '-c', f'{SPY}exec base64'])}",
        f"unwrap = {json.dumps(['sh', '-c', f'{SPY}exec base64 -d'])}",
    ]
    ring = write_ring(tmp_path, ring_text(*more, source=f"{{ command = {json.dumps(program)} }}"))
    loaded = KeyRing.load(ring)
    loaded.load_material()
    assert wrap_key(ring, "k2", "w") is None
    KeyRing.load(ring).load_material()
    with pytest.raises(LedgerSignerError):  # no SourceError: the program ended well
        CommandSigner(program, KeySigner("test", NEW).key).sign(b"text")
