"""Commands on a database with sealed metadata."""

from __future__ import annotations

import json
from pathlib import Path

from sealpoint.cli.exits import Exit
from tests.cli.conftest import Run
from tests.support.rings import states_text
from tests.support.rings import write as write_file
from tests.support.sealed import make_cipher, write
from tests.unit.databases.frames import PLAIN, put_metadata, seal_metadata


def test_a_key_that_only_seals_metadata_is_not_destroyed(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "app.db"
    write(path, "k2", "a")
    ring = write_file(tmp_path / "keys.toml", states_text(k2="active", k1="disabled"))
    words = ["keys", "destroy", "k1", "--yes", "--db", path, "--keys", ring]
    seal_metadata(path, make_cipher("k1"), "checkpoint_id = '000001'")
    refused = run(*words)
    assert refused.code == Exit.FOUND
    assert "1 rows under 'k1'" in refused.err
    put_metadata(path, lambda *_: json.dumps(PLAIN))
    assert run(*words).code == Exit.DONE
