"""The SBOM of the core, made from an installation of the wheel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from release.dist import build, digest
from release.sbom import components, sbom, validate


@pytest.mark.costly
def test_sbom_of_the_core_names_every_wheel(tmp_path: Path) -> None:
    wheel, _ = build("HEAD", tmp_path)
    document = sbom(tmp_path, "")
    text = json.dumps(document)
    validate(text)
    product, *needed = components(document)
    assert product["hashes"] == [{"alg": "SHA-256", "content": digest(wheel)}]
    assert {"cryptography", "ormsgpack"} <= {one["name"] for one in needed}
    for one in (product, *needed):
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"
        assert len(one["hashes"][0]["content"]) == 64
        assert one["licenses"]
    for word in ("file:", "serialNumber", "timestamp", str(tmp_path)):
        assert word not in text


def test_a_document_that_is_no_sbom_is_refused() -> None:
    with pytest.raises(ValueError, match="schema"):
        validate('{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{"name": "x"}]}')
