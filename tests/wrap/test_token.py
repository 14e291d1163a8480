"""PKCS#11 tokens as a process uses them: from threads, after forks, beside other users of the library."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pkcs11 as library
import pytest

from sealpoint.errors import KeyUnavailableError
from sealpoint.keys.wrap.pkcs11 import Wrapper
from sealpoint.keys.wrap.wrapper import NamedWrapper
from tests.support.keys.wrapping import CANARY, CONTEXT, Service
from tests.wrap import softhsm


def test_threads(pkcs11: Service) -> None:
    """A login is one of the whole process, and the second of a process is an error."""
    named = NamedWrapper("token", pkcs11.wrapper)  # which repeats what may pass, as every load does
    blob = named.wrap(CANARY, CONTEXT).blob
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: named.unwrap(blob, CONTEXT), range(4)))
    assert found == [CANARY] * 4


def test_forked_child(pkcs11: Service) -> None:
    blob = pkcs11.wrapper.wrap(CANARY, CONTEXT).blob
    found = b""
    child = os.fork()
    if not child:
        try:
            found = pkcs11.wrapper.unwrap(blob, CONTEXT)
        finally:
            os._exit(0 if found == CANARY else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert pkcs11.wrapper.unwrap(blob, CONTEXT) == CANARY


def test_library_that_the_program_uses_too(pkcs11: Service) -> None:
    """Its session remains open, and its login is not that of the wrapper."""
    try:
        token = library.lib(str(softhsm.MODULE)).get_token(token_label=softhsm.LABEL)
        with token.open(user_pin=softhsm.PIN) as session:
            assert pkcs11.wrapper.describe().problem is None
            assert session.get_key(label="one").key_length == 256
    finally:
        library.unload(str(softhsm.MODULE))


def test_wrong_pin(pkcs11: Service, tmp_path: Path) -> None:
    (tmp_path / "pin").write_text("0000", encoding="utf-8")
    with pytest.raises(KeyUnavailableError, match="PinIncorrect") as caught:
        pkcs11.wrapper.describe()
    assert not caught.value.may_pass
    assert "0000" not in str(caught.value)


@pytest.mark.parametrize(("field", "error"), [("token", "NoSuchToken"), ("key", "NoSuchKey")])
def test_wrong_labels(pkcs11: Service, tmp_path: Path, field: str, error: str) -> None:
    table = {"token": softhsm.LABEL, "key": "one", field: "none"}
    made = Wrapper.parse({"module": str(softhsm.MODULE), "pin": {"file": "pin"}, **table}, "a test", tmp_path)
    with pytest.raises(KeyUnavailableError, match=error):
        made.describe()
