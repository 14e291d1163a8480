"""What a release is installed with, in CycloneDX: of the core, and with the extra `all`.

The wheel is installed into a fresh environment, with the versions of locks/dev.txt: the same commit gives the
same file at any time. It is about one platform and Python, which it names: others get other wheels.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from release.dist import ROOT

KINDS: Final = {"core": "", "all": "[all]"}
LOCK: Final = ROOT / "locks" / "dev.txt"
MARKERS: Final = ("implementation_name", "python_version", "sys_platform", "platform_machine")


def write_sboms(dist: Path, out: Path) -> list[Path]:
    """Write the SBOM of each kind for the wheel and the sdist in a folder.

    Raises:
        ValueError: If one is invalid by the schema of CycloneDX.
        subprocess.CalledProcessError: If the wheel cannot be installed; pip has printed why.
    """
    out.mkdir(parents=True, exist_ok=True)
    files = []
    for kind, extras in KINDS.items():
        text = json.dumps(sbom(dist, extras), indent=2, sort_keys=True) + "\n"
        validate(text)
        files.append(out / f"{kind}.cdx.json")
        files[-1].write_text(text, encoding="utf-8")
    return files


def validate(text: str) -> None:
    """Check an SBOM by the schema that CycloneDX publishes, which its library brings along."""
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"the SBOM is invalid by the schema of CycloneDX 1.6: {error}")


def sbom(dist: Path, extras: str) -> dict[str, Any]:
    """Install the wheel with extras into a fresh environment, and describe what is there."""
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with TemporaryDirectory() as scratch:
        project = Path(scratch, "pyproject.toml")
        with tarfile.open(sdist) as files:
            member = files.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/pyproject.toml")
            project.write_bytes(member.read() if member else b"")
        report = install(f"{wheel.resolve()}{extras}", Path(scratch))
        command = ["cyclonedx_py", "environment", "--output-reproducible", "--spec-version", "1.6"]
        command += ["--mc-type", "library", "--pyproject", str(project), str(Path(scratch, "venv"))]
        printed = subprocess.run([sys.executable, "-m", *command], check=True, stdout=subprocess.PIPE).stdout
    document: dict[str, Any] = json.loads(printed)
    complete(document, report)
    return document


def install(what: str, folder: Path) -> dict[str, Any]:
    """Install into a new environment, without pip in it; pip's report."""
    environment, report = folder / "venv", folder / "report.json"
    venv.create(environment)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "--python",
        str(environment),
    ]
    words = ["install", "--only-binary", ":all:", "--constraint", str(LOCK), "--report", str(report), what]
    subprocess.run([*pip, *words], check=True)
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return found


def complete(document: dict[str, Any], report: dict[str, Any]) -> None:
    """Add what only pip knows: the digest of each installed wheel, and for which platform it chose them."""
    digests = {
        purl(entry["metadata"]): entry["download_info"]["archive_info"]["hashes"]["sha256"]
        for entry in report["install"]
    }
    for component in components(document):
        component["purl"] = purl(component)
        component["hashes"] = [{"alg": "SHA-256", "content": digests.pop(component["purl"])}]
    if digests:
        raise ValueError(f"installed, and not in the SBOM: {', '.join(digests)}")
    properties = document["metadata"].setdefault("properties", [])
    properties += [{"name": f"pep508:{name}", "value": report["environment"][name]} for name in MARKERS]


def components(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The product of an SBOM, then what it needs."""
    yield document["metadata"]["component"]
    yield from document["components"]


def purl(component: dict[str, Any]) -> str:
    """Return the package URL of a project and its version."""
    name = component["name"].lower().replace("_", "-").replace(".", "-")
    return f"pkg:pypi/{name}@{component['version']}"
