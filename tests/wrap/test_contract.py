"""What every kind of wrapper does, with a real service behind it: docs/wrapped-keys.md relies on all of it.

In each test nothing that is raised, logged, printed or represented shows the key or a credential.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sealpoint.errors import KeyRingError, KeyUnavailableError, WrappedKeyError
from sealpoint.keys.wrap import WrapContext, Wrapper
from sealpoint.keys.wrap.wrapper import MAX_BLOB_BYTES
from tests.support.keys.wrapping import CANARY, CONTEXT, OTHERS, Forms, Service, shown
from tests.support.runs.extent import by_extent

SECRET = Forms.of(CANARY)


@pytest.fixture(autouse=True)
def secrecy(
    service: Service, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[Forms]:
    """The forms of everything secret here; after the test nothing has shown any of them."""
    caplog.set_level(logging.DEBUG)
    forms = Forms.of(CANARY, *service.secrets)
    yield forms
    records = [repr(vars(record)) for record in caplog.get_records("call")]
    forms.require_absent(caplog.text, *records, *capfd.readouterr())
    forms.require_absent(repr(service.wrapper), service.wrapper.location)
    SECRET.require_absent(Path("/proc/self/environ").read_bytes().decode("latin-1"))
    if service.record is not None:
        SECRET.require_absent(service.record.read_text(encoding="utf-8"))


@pytest.fixture
def blob(service: Service) -> bytes:
    return service.wrapper.wrap(CANARY, CONTEXT).blob


@pytest.fixture
def refuses(secrecy: Forms) -> Callable[[type[KeyRingError], Callable[[], object]], KeyRingError]:
    """Call what must raise an error of this very class, and return the error, which shows no secret."""

    def call(expected: type[KeyRingError], function: Callable[[], object]) -> KeyRingError:
        with pytest.raises(expected) as caught:
            function()
        assert type(caught.value) is expected
        assert caught.value.hint
        assert "\n" not in str(caught.value)
        secrecy.require_absent(*shown(caught.value))
        return caught.value

    return call


Refuses = Callable[[type[KeyRingError], Callable[[], object]], KeyRingError]


# Ids without the material: pytest puts them into the environment.
@pytest.mark.broad
@pytest.mark.parametrize(
    "material", [CANARY, CANARY[:24], CANARY[:16], bytes(32), b"\xff" * 32], ids=range(5)
)
def test_what_was_wrapped_is_unwrapped(service: Service, material: bytes) -> None:
    wrapped = service.wrapper.wrap(material, CONTEXT)
    assert material not in wrapped.blob
    assert len(wrapped.blob) < MAX_BLOB_BYTES / 4
    assert service.wrapper.unwrap(wrapped.blob, CONTEXT) == material


@pytest.mark.parametrize("context", [WrapContext("ring", "k"), WrapContext('zürich "1" 🔑', "a.b-c")])
def test_any_name_of_a_ring(service: Service, context: WrapContext) -> None:
    assert service.wrapper.unwrap(service.wrapper.wrap(CANARY, context).blob, context) == CANARY


def test_wrapping_twice_makes_different_blobs(service: Service, blob: bytes) -> None:
    assert service.wrapper.wrap(CANARY, CONTEXT).blob != blob


@pytest.mark.broad
@pytest.mark.parametrize("context", OTHERS)
def test_blob_of_another_context(
    service: Service, blob: bytes, context: WrapContext, refuses: Refuses
) -> None:
    refuses(WrappedKeyError, lambda: service.wrapper.unwrap(blob, context))


def test_blob_of_another_wrapping_key(service: Service, blob: bytes, refuses: Refuses) -> None:
    if service.other is service.wrapper:
        pytest.skip("docs/wrapped-keys.md has one key of it: tests/wrap/test_programs.py makes another")
    refuses(service.foreign, lambda: service.other.unwrap(blob, CONTEXT))


def test_damaged_blob(service: Service, blob: bytes, secrecy: Forms) -> None:
    """Flipped bits never give material. Which error it is may depend on what the blob then names."""
    for place in range(0, len(blob), service.flips * by_extent(3, 1)):
        damaged = blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]
        with pytest.raises((WrappedKeyError, KeyUnavailableError)) as caught:
            service.wrapper.unwrap(damaged, CONTEXT)
        secrecy.require_absent(*shown(caught.value))


@pytest.mark.broad
@pytest.mark.parametrize("change", ["empty", "cut", "longer", "key itself", "not text"])
def test_what_is_no_blob(service: Service, blob: bytes, change: str, refuses: Refuses) -> None:
    changed = {
        "empty": b"",
        "cut": blob[:-4],  # the last byte of a text may be a newline
        "longer": blob + b"A",
        "key itself": CANARY,
        "not text": b"\xff\0\n" * 30,
    }
    refuses(service.damaged, lambda: service.wrapper.unwrap(changed[change], CONTEXT))


def asked(wrapper: Wrapper, blob: bytes) -> list[Callable[[], object]]:
    """Every call of a wrapper."""
    calls = [lambda: wrapper.wrap(CANARY, CONTEXT), lambda: wrapper.unwrap(blob, CONTEXT)]
    # There is no program to ask for the state of a key.
    return calls if wrapper.kind == "command" else [*calls, wrapper.describe]


@pytest.mark.costly
@pytest.mark.broad
@pytest.mark.parametrize("situation", ["gone", "silent"])
def test_service_that_is_away_and_comes_back(
    service: Service, blob: bytes, situation: str, refuses: Refuses
) -> None:
    with getattr(service, situation)():
        for call in asked(service.wrapper, blob):
            refuses(KeyUnavailableError, call)
    assert service.wrapper.unwrap(blob, CONTEXT) == CANARY
    assert service.wrapper.describe().problem is None
    SECRET.require_absent(repr(service.wrapper.describe()))


def test_disabled_key(service: Service, blob: bytes, refuses: Refuses) -> None:
    if service.disabled is None:
        pytest.skip("this service does not disable keys, or its emulator unwraps under disabled ones")
    with service.disabled():
        refuses(KeyUnavailableError, lambda: service.wrapper.unwrap(blob, CONTEXT))
    assert service.wrapper.unwrap(blob, CONTEXT) == CANARY


def test_rotated_wrapping_key_unwraps_the_old_blob(service: Service, blob: bytes) -> None:
    if service.rotate is None:
        pytest.skip("keys of this service have no versions")
    before = service.wrapper.describe().version
    service.rotate()
    assert service.wrapper.unwrap(blob, CONTEXT) == CANARY
    wrapped = service.wrapper.wrap(CANARY, CONTEXT)
    assert service.wrapper.unwrap(wrapped.blob, CONTEXT) == CANARY
    after = service.wrapper.describe().version
    assert before is None or before != after
    assert wrapped.version in {None, after}


def test_wrappers_are_equal_if_they_unwrap_the_same(service: Service) -> None:
    again = pickle.loads(pickle.dumps(service.wrapper))
    assert again == service.wrapper
    assert hash(again) == hash(service.wrapper)
    assert (service.other != service.wrapper) == (service.other is not service.wrapper)
