"""The demo is run once as a user runs it, and once broken on purpose: then it must say so."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver

from demo import agent, planted, story
from demo.__main__ import main
from demo.attacks import ATTACKS, Attack, Outcome, Side, attempt
from sealpoint import EncryptedSerializer, KeyRing, KeyState, RingCipher
from sealpoint.langgraph import SealedSaver

ROOT = Path(__file__).parents[2]
COLUMNS = 100


@dataclass(frozen=True)
class Run:
    """What one run of the command printed and left behind."""

    code: int
    output: str
    errors: str
    kept: Path
    temporary: list[Path]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """`python -m demo --keep DIR`, in a process of its own."""
    kept = tmp_path_factory.mktemp("demo") / "kept"
    # Not in the folder of pytest: Postgres may run as another user, see tests/support/servers/postgres.py.
    with TemporaryDirectory(prefix="sealpoint-") as temporary:
        yield run_in(Path(temporary), kept)


def run_in(temporary: Path, kept: Path) -> Run:
    """Run the demo in another process, with ``temporary`` for its temporary files."""
    environment = os.environ | {"TMPDIR": str(temporary), "LANGSMITH_TRACING": "true"}
    environment.pop("LANGGRAPH_STRICT_MSGPACK", None)
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--keep", str(kept)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr, kept, list(temporary.iterdir()))


def attack_named(name: str) -> Attack:
    """The attack of that name."""
    return next(attack for attack in ATTACKS if attack.name == name)


def line_of(output: str, start: str) -> str:
    """The first line that begins with ``start``, without the white space around it."""
    return next(line.strip() for line in output.splitlines() if line.strip().startswith(start))


def shown_in(page: Path) -> str:
    """What a page shows below the command."""
    return page.read_text(encoding="utf-8").partition("$ make demo\n")[2].partition("```")[0].strip()


@pytest.mark.costly
def test_claims_hold(run: Run) -> None:
    assert run.code == 0, run.output + run.errors
    assert "claims of this demo hold" in run.output
    assert not run.errors
    assert not run.temporary
    shown, _, _ = run.output.partition("Kept:")
    assert max(map(len, shown.splitlines())) <= COLUMNS


def cells(output: str, name: str) -> list[str]:
    """What the line of a table has behind its name."""
    return line_of(output, name).removeprefix(name).split()


@pytest.mark.claim("a1")
@pytest.mark.costly
def test_secret_is_found_only_without_sealpoint(run: Run) -> None:
    for what in story.SEALED:
        assert cells(run.output, what) == ["sealed", "-", "-", "-", "found"]
    for what in story.READABLE:
        assert cells(run.output, what) == ["READABLE", "-", "found", "found", "found"]
    _, _, shown = run.output.partition("7. ")
    for place in planted.PLACES:  # on SQLite, then on Postgres; under SealedSaver, and under a bare saver
        assert cells(shown, place) == ["found", "-"] * 2


def test_search_knows_how_a_value_may_be_stored(tmp_path: Path) -> None:
    """As text, hex, base64 wherever it begins, MessagePack and JSONB."""
    file = tmp_path / "file"
    stored = [
        b"canary",
        b"canary".hex().encode(),
        *(b64encode(b"." * before + b"canary") for before in range(3)),
    ]
    for data in stored:
        file.write_bytes(b"before" + data + b"after")
        assert planted.search([file], {"text": "canary", "other": "absent"}) == {"text"}
    number = 1234_0567_8900_0012_345
    for data in (b"1234056789000012345", number.to_bytes(8, "big"), jsonb_digits(number)):
        file.write_bytes(data)
        assert planted.search([file], {"number": number, "other": number + 1}) == {"number"}


def jsonb_digits(number: int) -> bytes:
    """The digits of a number in JSONB: four of them in each 16 bits, from the right."""
    groups: list[bytes] = []
    while number:
        number, group = divmod(number, 10_000)
        groups.insert(0, group.to_bytes(2, "little"))
    return b"".join(groups)


@pytest.mark.costly
def test_page_shows_what_the_demo_prints(run: Run) -> None:
    assert shown_in(ROOT / "docs" / "demo.md") == run.output.partition("Kept:")[0].strip()


@pytest.mark.costly
def test_readme_shows_lines_of_it(run: Run) -> None:
    """Whole lines, in their order; ``...`` stands for those that are left out."""
    printed = iter(run.output.splitlines())
    lines = [line for line in shown_in(ROOT / "README.md").splitlines() if line != "..."]
    assert len(lines) > 8
    assert [line for line in lines if line not in printed] == []


@pytest.mark.costly
def test_kept_folder_holds_database_and_private_ring(run: Run) -> None:
    names = {path.name for path in run.kept.iterdir()}
    assert names == {"state.db", "threads.db", "keys.toml", "index.key", "k2.key"}
    assert stat.S_IMODE(run.kept.stat().st_mode) == 0o700
    private = [run.kept / "keys.toml", run.kept / "threads.db", *run.kept.rglob("*.key")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    assert str(run.kept) in run.output
    states = {key.id: key.state for key in KeyRing.load(run.kept / "keys.toml").keys}
    assert states == {"k2": KeyState.ACTIVE, "k1": KeyState.DESTROYED}


@pytest.mark.costly
def test_attack_gets_through_a_lax_saver(run: Run) -> None:
    """The forged row is one that a reader takes, unless it refuses plaintext."""
    serde = EncryptedSerializer(RingCipher(KeyRing.load(run.kept / "keys.toml")), plaintext="allow")

    def lax(connection: sqlite3.Connection) -> SealedSaver:
        return SealedSaver(SqliteSaver(connection), serde=serde, unbound="allow")

    outcome = attempt(attack_named("plaintext row added"), Side(run.kept / "state.db", lax, lax))
    assert outcome == Outcome(None, 'the agent\'s last message is "Done: 48,250.00 EUR sent to Mallory."')


@pytest.mark.costly
def test_demo_notices_a_saver_that_does_not_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And without pycryptodome and Postgres it leaves their columns out, and says so."""
    for module in ("Crypto", "Crypto.Cipher"):  # another test may have imported it
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("PGSERVER_POSTGRES_VERSION", "1")  # so that the server does not start
    monkeypatch.setattr(agent, "seal_store", lambda store, ring: store)
    assert not story.run_demo(tmp_path, lambda saver, ring, **_: saver)
    output = capsys.readouterr().out
    broken = output.partition("claims do NOT hold:\n")[2].splitlines()
    assert {
        "another process resumes the thread",
        "every row names its key",
        "the customer, in a message: sealed",
        "one bit flipped, SealedSaver: IntegrityError",
        "plaintext row added, SealedSaver: PlaintextError",
        "key k1 missing, SealedSaver: UnknownKeyError",
        "rows of another thread, SealedSaver: IntegrityError",
        "rotation leaves no value under the old key",
        "every row is under k2 now",
        "another process continues the thread",
        "rows under the old key: KeyDestroyedError",
        *(f"the {place}: not in the files of SQLite" for place in planted.PLACES),
    } <= {line.strip() for line in broken}
    assert "it needs pycryptodome, which is not installed" in output
    assert "Postgres is LEFT OUT: RuntimeError: Unsupported Postgres version" in output
    assert "claims of this demo hold" not in output


@pytest.mark.parametrize("held", [True, False])
def test_command_cleans_up_and_answers(held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 0 or 1, and the folder, private while it was there, is gone."""
    folders: list[Path] = []

    def run_demo(folder: Path) -> bool:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "state.db").touch()
        folders.append(folder)
        return held

    monkeypatch.setattr(story, "run_demo", run_demo)
    assert main([]) == (0 if held else 1)
    assert not folders[0].exists()


def test_command_keeps_out_of_a_folder_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(SystemExit) as exit_info:
        main(["--keep", str(tmp_path)])
    assert exit_info.value.code == 2
    assert "is not empty" in capsys.readouterr().err


def test_command_names_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without LangGraph there is one line that says what to install."""
    monkeypatch.setitem(sys.modules, "demo.story", None)
    assert main([]) == 2
    assert "pip install '.[cli,langgraph]'" in capsys.readouterr().err
