"""LangGraph's own tests, from its source packages, with sealpoint in them.

    python -m tests.compat.ownsuites [FORM ...]

Tests of stores have SealedStore around each store, in the forms ``open`` and ``all``, or run ``plain``. Those
of serializers and savers have their imports under the prefix swap, in the form ``swap``.
Downloads the source packages of the installed versions, and plugins of pytest, into a temporary folder; with
$SEALPOINT_SUITES that is the folder, and what is there is not downloaded again. Ends with 1 if a test fails
that `DEVIATIONS` does not name, or none fails that it names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final
from urllib.parse import quote
from xml.etree import ElementTree

from tests.compat.ownsuites.deviations import DEVIATIONS, FLAKY, NOT_RUN
from tests.compat.ownsuites.swap import swapped
from tests.support.servers.postgres import started

HERE: Final = Path(__file__).parent
VECTORS: Final = HERE.parents[1] / "support" / "databases"
FORMS: Final = ("plain", "open", "all", "swap")
STORES: Final = {
    "langgraph-checkpoint": ("test_store.py",),
    "langgraph-checkpoint-sqlite": ("test_store.py", "test_async_store.py", "test_ttl.py"),
    "langgraph-checkpoint-postgres": ("test_store.py", "test_async_store.py"),
}
CACHES: Final = {"test_redis_cache.py"}
SAVERS: Final = ("langgraph-checkpoint", "langgraph-checkpoint-sqlite")  # all of their tests but the above
PLUGINS: Final = ("pytest-asyncio", "pytest-mock", "pytest-retry")
IMPORTED: Final = (  # by the tests of the serializer, with what these need
    *("dataclasses-json", "marshmallow", "typing-inspect", "mypy_extensions"),
    *("pandas", "python-dateutil", "six"),
)
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def fetch(folder: Path) -> None:
    """Download what is not there yet."""
    for package in STORES:
        if not (folder / package).is_dir():
            wanted = f"{package}=={version(package)}"
            subprocess.run(
                [*PIP, "download", "--no-deps", "--no-binary", ":all:", "--dest", str(folder), wanted],
                check=True,
            )
            name = wanted.replace("==", "-").replace("-", "_", package.count("-"))
            with tarfile.open(folder / f"{name}.tar.gz") as archive:
                archive.extractall(folder / "sources", filter="data")
            suite = folder / package
            shutil.copytree(folder / "sources" / name / "tests", suite / "tests")
            shutil.copy(folder / "sources" / name / "pyproject.toml", suite)
    if not (folder / "plugins").is_dir():
        subprocess.run(
            [*PIP, "install", "--no-deps", "--target", str(folder / "plugins"), *PLUGINS, *IMPORTED],
            check=True,
        )


def point(suite: Path, dsn: str) -> None:
    """Let the tests on Postgres use a server, whose socket is in a folder."""
    place = suite / "tests" / "conftest.py"
    host = re.search(r"host=([^&]+)", dsn)
    assert host is not None, dsn
    uri = f"postgresql://postgres@{quote(host[1], safe='')}/"
    text = place.read_text(encoding="utf-8")
    for name, value in (("DEFAULT_POSTGRES_URI", uri), ("DEFAULT_URI", f"{uri}postgres")):
        text = re.sub(f"(?m)^{name} = .*$", f'{name} = "{value}"', text)
    place.write_text(text, encoding="utf-8")


def suite_of(folder: Path, package: str, form: str) -> tuple[Path, list[str]]:
    """Return the folder of a suite in one of the forms, and its files."""
    suite = folder / package
    if form != "swap":
        return suite, [f"tests/{name}" for name in STORES[package]]
    swap = folder / f"{package}-swap"
    shutil.rmtree(swap, ignore_errors=True)
    shutil.copytree(suite, swap)
    others = CACHES.union(STORES[package])
    found = sorted(file for file in swap.glob("tests/test_*.py") if file.name not in others)
    for file in found:
        file.write_text(swapped(file.read_text(encoding="utf-8")), encoding="utf-8")
    return swap, [f"tests/{file.name}" for file in found]


def run(folder: Path, package: str, form: str) -> tuple[int, set[str]]:
    """Run a suite in one of the forms; return how many tests ran, and which failed."""
    suite, names = suite_of(folder, package, form)
    report = folder / f"{package}-{form}.xml"
    report.unlink(missing_ok=True)
    paths = [str(folder / "plugins"), str(HERE), str(VECTORS)]
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                "-q",
                *(() if form == "swap" else ("-p", "plugin")),
                "-p",
                "no:randomly",
                "-p",
                "no:cacheprovider",
            ),
            *("-n", "2", "--dist", "loadfile", "--timeout", "120", "--junitxml", str(report)),
            *("-k", " and ".join(f"not {name}" for name in NOT_RUN if form == "swap")),
            *names,
        ],
        cwd=suite,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "SEALPOINT_FORM": form},
        stdout=(folder / f"{package}-{form}.txt").open("w"),
        stderr=subprocess.STDOUT,
        check=False,
    )
    if not report.is_file():
        raise SystemExit(f"{package}, {form}: pytest ended with {done.returncode}: see {folder}")
    cases = list(ElementTree.parse(report).iter("testcase"))  # noqa: S314 -- our own report
    failed = {
        f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
    return len(cases), failed


@contextmanager
def working() -> Iterator[Path]:
    """Give the folder to work in."""
    if given := os.environ.get("SEALPOINT_SUITES"):
        Path(given).mkdir(parents=True, exist_ok=True)
        yield Path(given)
        return
    with tempfile.TemporaryDirectory(prefix="sealpoint-suites-") as made:
        yield Path(made)


def main() -> int:
    """Run all suites in some forms, or in all; print what each shows."""
    forms = sys.argv[1:] or FORMS
    wrong = 0
    with working() as folder, ExitStack() as stack:
        fetch(folder)
        if set(forms) != {"swap"}:
            point(folder / "langgraph-checkpoint-postgres", stack.enter_context(started()))
        for form in forms:
            for package in SAVERS if form == "swap" else STORES:
                count, failed = run(folder, package, form)
                reasons = DEVIATIONS.get((package, form), {})
                named = {test for test in failed if any(re.fullmatch(pattern, test) for pattern in reasons)}
                unnamed = failed - named - {test for test in failed if test in FLAKY}
                idle = [
                    pattern for pattern in reasons if not any(re.fullmatch(pattern, test) for test in named)
                ]
                print(f"{package}, {form}: {count - len(failed)} of {count} pass, {len(named)} may fail")  # noqa: T201
                for test in sorted(unnamed):
                    print(f"  fails without a reason: {test}")  # noqa: T201
                for pattern in idle:
                    print(f"  fails no more: {pattern}: {reasons[pattern]}")  # noqa: T201
                wrong += len(unnamed) + len(idle)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
