"""`docs/migration.md`, with the app of examples/ in two processes under steady requests: none fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from tests.deploy.rolling import Service, program
from tests.deploy.test_examples import Place
from tests.support.servers.postgres import schema, server

AES: Final = """

[[key]]
id = "langgraph"
state = "decrypt-only"
suite = "aes"
source = { env = "LANGGRAPH_AES_KEY" }
"""


@dataclass(frozen=True)
class Way:
    """A row of the second table of the page.

    Attributes:
        old: OLD.
        serde: The serializer until the last step.
        rebind: Options that binding needs.
    """

    old: str
    serde: str
    rebind: tuple[str, ...] = ()


ALONE: Final = "EncryptedSerializer.from_key_file()"
WAYS: Final = {
    "plain": Way(
        "JsonPlusSerializer()", 'EncryptedSerializer.from_key_file(plaintext="allow")', ("--allow-plaintext",)
    ),
    "aes": Way("LangGraphEncrypted.from_pycryptodome_aes()", ALONE, ("--allow-legacy",)),
    "serializer": Way(ALONE, ALONE),
}


@pytest.fixture
def place(tmp_path: Path, forked: Path) -> Place:
    return Place(tmp_path, forked)


@pytest.fixture
def url(pytestconfig: pytest.Config) -> Iterator[str]:
    with schema(server(pytestconfig)) as dsn:
        yield dsn


def begin(place: Place, way: Way, url: str, stack: ExitStack) -> Service:
    """The old program in two processes, and those of the other steps beside it."""
    if "aes" in way.old:
        place.env["LANGGRAPH_AES_KEY"] = "16, 24, 32 bytes"
        ring = Path(place.env["SEALPOINT_KEYS"])
        ring.write_text(ring.read_text(encoding="utf-8") + AES, encoding="utf-8")
    if url:
        place.env["DATABASE_URL"] = url
        with PostgresSaver.from_conn_string(url) as saver:
            saver.setup()
    example = (place.folder / "web.py").read_text(encoding="utf-8")
    for step in (0, 1, 2, 4):
        text = program(example, old=way.old, serde=way.serde, step=step, postgres=bool(url))
        (place.folder / f"step{step}.py").write_text(text, encoding="utf-8")
    service = Service(place.folder, place.env, stack)
    service.deploy(0)
    return service


def repeated(place: Place, *words: str) -> str:
    """Run a command again, as its hint says, while agents read all the time and the log cannot be emptied."""
    for _ in range(4):
        try:
            return place.run(*words)
        except AssertionError as error:
            if "cannot be emptied" not in str(error):
                raise
    return place.run(*words)


def forth(place: Place, way: Way, service: Service, database: str, scrub: tuple[str, ...]) -> None:
    """All steps of the page."""
    service.mix()
    service.deploy(1)
    service.deploy(2)
    done = repeated(place, "sealpoint", "rebind", database, "--apply", *way.rebind, *scrub)
    assert not scrub or "found nothing" in done
    place.run("sealpoint", "verify", database, "--bound")
    service.deploy(4)


def require_answered(service: Service, *steps: int) -> None:
    assert service.failed == []
    assert all(service.answered[step] > 0 for step in steps), service.answered


@pytest.mark.costly
def test_from_plain_rows_without_a_failed_request(place: Place) -> None:
    with ExitStack() as stack:
        service = begin(place, WAYS["plain"], "", stack)
        with service.asked():
            forth(place, WAYS["plain"], service, str(place.state), ("--scrub",))
        require_answered(service, 0, 1, 2, 4)
    place.require_sealed()


@pytest.mark.costly
def test_a_step_that_is_left_out_is_noticed_and_loses_nothing(place: Place) -> None:
    """The old processes fail on each thread that a new one has written, until they are replaced."""
    with ExitStack() as stack:
        service = begin(place, WAYS["plain"], "", stack)
        with service.asked():
            service.mix()
            service.deploy(2)
            failed = [*service.failed]
        assert failed
        assert all(", step 0: " in problem for problem in failed), failed
        service.failed.clear()
        service.ask_all()
        require_answered(service, 0, 2)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("way", "kind"),
    [
        pytest.param(way, kind, marks=() if (way, kind) == ("plain", "postgres") else pytest.mark.soak)
        for way in WAYS
        for kind in ("file", "postgres")
    ],
)
def test_there_and_back_without_a_failed_request(
    place: Place, way: str, kind: str, request: pytest.FixtureRequest
) -> None:
    """As far as it goes without a stop: rows that were plain or under the other key stay sealed."""
    url = request.getfixturevalue("url") if kind == "postgres" else ""
    database, each = "postgresql://" if url else str(place.state), WAYS[way]
    place.env |= variables(url) if url else {}
    with ExitStack() as stack:
        service = begin(place, each, url, stack)
        with service.asked():
            forth(place, each, service, database, () if url else ("--scrub",))
            service.deploy(2)
            service.deploy(1)
            if way == "serializer":
                place.run("sealpoint", "rebind", database, "--unbind", "--apply")
                service.deploy(0)
        service.ask_all()
        require_answered(service, 0, 1, 2, 4)
        if way == "serializer" or url:
            return
        service.stop()
        place.env["STATE_DB"] = str(place.state.with_name("copy.db"))
        accepted = {*each.rebind} & {"--allow-plaintext"}
        place.run("sealpoint", "decrypt", database, "--out", place.env["STATE_DB"], *accepted)
        service.deploy(0)
        service.ask_all()
        require_answered(service)


def variables(url: str) -> dict[str, str]:
    """What libpq reads in place of the parts of a DSN."""
    found = psycopg.conninfo.conninfo_to_dict(url)
    names = {name: "DATABASE" if name == "dbname" else name.upper() for name in found}
    return {f"PG{names[name]}": str(value) for name, value in found.items()}
