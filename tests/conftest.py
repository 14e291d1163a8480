"""Settings for all tests: HYPOTHESIS_PROFILE is how hard hypothesis tries, SEALPOINT_TESTS how much runs."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from psycopg.conninfo import conninfo_to_dict

from tests.cli.browser import CHROMIUM, MISSING
from tests.support.runs.extent import VARIABLE, by_extent, is_sample, sample
from tests.support.runs.forked import forked_program
from tests.support.servers import containers
from tests.support.servers.postgres import own_role, schema, server
from tests.wrap import programs, softhsm

FIRST = ("test_demo.py", "test_attacks.py")

# Programs in the background inherit that these are ignored, and commands that they start do, too.
for _signal in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, signal.SIG_DFL if _signal is signal.SIGHUP else signal.default_int_handler)

# No deadlines and no complaint about slow strategies: neither means anything on a busy machine.
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("default", steady, max_examples=by_extent(20, 50))
settings.register_profile("ci", steady, max_examples=100, print_blob=True)
settings.register_profile("thorough", steady, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def forked() -> Iterator[Path]:
    """The command `sealpoint`, which is forked from a process that has imported it."""
    with forked_program() as folder:
        yield folder / "sealpoint"


@pytest.fixture(scope="session")
def script_path(forked: Path) -> str:
    """A PATH for scripts, with that command, and the Python of these tests."""
    python = str(Path(sys.executable).parent)
    return os.pathsep.join([str(forked.parent), python, os.environ.get("PATH", os.defpath)])


@pytest.fixture
def postgres_service(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A database that libpq finds as the service `agents`, as a role of its own that is no superuser."""
    with schema(server(pytestconfig)) as dsn, own_role(dsn) as own:
        parts = conninfo_to_dict(own)
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute(f'GRANT CREATE ON DATABASE "{admin.info.dbname}" TO {parts["user"]}'.encode())
        file = tmp_path_factory.mktemp("service") / "pg_service.conf"
        lines = [f"{part}={value}\n" for part, value in parts.items()]
        file.write_text("".join(["[agents]\n", *lines]), encoding="utf-8")
        monkeypatch.setenv("PGSERVICEFILE", str(file))
        monkeypatch.setenv("DATABASE_URL", "postgresql:///?service=agents")  # as pages export it, for Python
        yield


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Three workers for two cores: tests wait for servers and processes, and each imports all of them."""
    return ((yield) * 3 + 1) // 2


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Take the sample of what `-m` and `-k` leave; it does not depend on the order, which is random.

    Modules with one run for all of their tests come first. At the end of a run a worker takes half of the
    tests that another has left, and if it took these the demo would run twice.
    """
    places = {item.nodeid: place for place, item in enumerate(items)}
    yield
    if is_sample(config.args):
        ordered = sorted(items, key=lambda item: places[item.nodeid])
        kept, left_out = map(set, sample(ordered, costly="costly" in config.option.markexpr))
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item in kept]
    items.sort(key=lambda item: item.path.name not in FIRST)


def pytest_collection_finish() -> None:
    """Keep what is imported and collected, some million objects, out of all later garbage collections."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.pluginmanager.has_plugin("randomly") and config.getoption("randomly_reorganize"):
        seed = config.getoption("randomly_seed")
        terminalreporter.write_line(
            f"in random order; again in this one: make test ARGS=--randomly-seed={seed}"
        )
    if is_sample(config.args):
        terminalreporter.write_line(f"the broad tests ran as a sample; all of them: {VARIABLE}=all make test")
    if CHROMIUM is None:
        terminalreporter.write_line(f"the page of a report was opened in no browser: {MISSING}")
    for lack in filter(None, [softhsm.MISSING, *map(programs.missing, programs.NEEDED)]):
        terminalreporter.write_line(f"a wrapper of keys was not tested: {lack}")
    if not shutil.which("parallel"):
        terminalreporter.write_line("examples/scale/parallel.sh was not run: no program parallel")
    if containers.MISSING is not None:
        terminalreporter.write_line(
            f"the pages on Kubernetes and systemd were not followed as other accounts: {containers.MISSING}"
        )
