"""Laws of the counts for monitoring: every error that is raised is counted once, by its class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, Final

import ormsgpack
from hypothesis import given
from hypothesis import strategies as st

from sealpoint import errors
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import SealpointError
from sealpoint.serde import EncryptedSerializer, JsonPlusSerializer
from tests.support.keys.rings import NEW, OLD, OTHER

READER: Final = KeyRing(
    [
        Key("new", NEW, KeyState.ACTIVE),
        Key("old", OLD, KeyState.DISABLED),
        Key("gone", b"", KeyState.DESTROYED),
        Key("langgraph", OTHER, KeyState.DECRYPT_ONLY, suite="aes"),
    ]
)
ONLY_READER: Final = KeyRing([Key("new", NEW, KeyState.DECRYPT_ONLY)])
Act = Callable[[EncryptedSerializer], Any]


def sealed(key_id: str = "new", material: bytes = NEW, inner: str = "msgpack", **more: Any) -> Any:
    ring = KeyRing([Key(key_id, material, KeyState.ACTIVE)])
    return RingCipher(ring).seal(inner, more.pop("data", ormsgpack.packb({"a": 1})), **more)


GOOD: Final = sealed()
BLOCKED: Final = sealed(data=ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(["os", "system", "x"]))))


def cipher_of(serde: EncryptedSerializer) -> RingCipher:
    assert isinstance(serde.cipher, RingCipher)
    return serde.cipher


def loads(tag: Any, blob: Any) -> Act:
    return lambda serde: serde.loads_typed((tag, blob))


def opens(tag: Any, blob: Any, **more: Any) -> Act:
    return lambda serde: serde.open(tag, blob, **more)


def opens_bytes(tag: Any, blob: Any, **more: Any) -> Act:
    return lambda serde: cipher_of(serde).open(tag, blob, **more)


HOSTILE: Final[list[tuple[Any, Any]]] = [
    (GOOD[0], GOOD[1][:-1]),
    (GOOD[0], b""),
    (GOOD[0], "text"),
    (GOOD[0].replace("@new", "@other"), GOOD[1]),
    (GOOD[0].replace("cobblestone256", "rot13"), GOOD[1]),
    (None, GOOD[1]),
    ("a+b+c", GOOD[1]),
    ("msgpack", ormsgpack.packb(1)),
    ("pickle", b"."),
    ("msgpack+aes", b"0" * 40),
    ("pickle+aes", b"0" * 40),
    sealed("old", OLD),
    sealed("gone", OTHER),
    sealed(row={"a": "b"}),
    (GOOD[0].replace("@new", ".dek@new"), GOOD[1]),
    sealed(inner="unknown"),
    sealed(data=b"\xc1"),
    BLOCKED,
]
ACTS: Final[list[Act]] = [
    loads(*GOOD),
    *(make(*value) for value in HOSTILE for make in (loads, opens, opens_bytes)),
    opens(*GOOD, row={"a": "b"}),
    opens_bytes(*GOOD, row={"a": "b"}),
    lambda serde: serde.dumps_typed({"a": 1}),
    lambda serde: serde.dumps_typed(object()),
    lambda serde: serde.seal(lambda: None),
    lambda serde: cipher_of(serde).seal("", b""),
    lambda serde: cipher_of(serde).seal("a b", b""),
    lambda serde: cipher_of(serde).decrypt("cobblestone256@new", b"0" * 90),
    lambda serde: cipher_of(serde).encrypt(b"value"),
]


def make(ring: KeyRing = READER, **options: Any) -> EncryptedSerializer:
    return EncryptedSerializer(RingCipher(ring), JsonPlusSerializer(allowed_msgpack_modules=None), **options)


def raised(serde: EncryptedSerializer, acts: list[Act]) -> Counter[str]:
    """The classes of the errors that some calls raise."""
    met = Counter[str]()
    for act in acts:
        try:
            act(serde)
        except SealpointError as error:
            met[type(error).__name__] += 1
    return met


@given(st.lists(st.sampled_from(ACTS), max_size=20), st.sampled_from([READER, ONLY_READER]), st.booleans())
def test_every_raised_error_is_counted_once(acts: list[Act], ring: KeyRing, is_lax: bool) -> None:
    serde = make(ring, plaintext="allow" if is_lax else "refuse")
    assert raised(serde, acts) == cipher_of(serde).stats().refused


def test_every_class_of_a_sealed_value_is_among_them() -> None:
    """So that the law above is about all that a cipher and a serializer refuse."""
    met = raised(make(), ACTS) + raised(make(ONLY_READER), ACTS)
    expected = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.SealedValueError)
    } - {"SealedValueError", "SealingError"}
    expected |= {"UnknownKeyError", "KeyDisabledError", "KeyDestroyedError", "NoActiveKeyError"}
    expected |= {"BlockedTypeError", "DecodeError", "UnknownTypeError", "UnsupportedTypeError"}
    assert {*met} >= expected


def test_exact_over_eight_threads() -> None:
    serde, gate = make(), Barrier(8)

    def work(_: int) -> Counter[str]:
        gate.wait()
        return raised(serde, ACTS * 5)

    with ThreadPoolExecutor(8) as pool:
        met = sum(pool.map(work, range(8)), Counter[str]())
    assert met == cipher_of(serde).stats().refused


def test_one_error_that_passes_several_layers_counts_once() -> None:
    serde = make()
    error = errors.IntegrityError("met")
    for _ in range(3):
        serde.tally.refuse(error)
    assert cipher_of(serde).stats().refused == {"IntegrityError": 1}


def test_an_error_in_the_arguments_is_no_refusal() -> None:
    serde = make()
    serde.tally.refuse(errors.ConfigError("not a config"))
    assert cipher_of(serde).stats().refused == {}


def test_plaintext_is_counted_for_all_serializers_of_a_cipher() -> None:
    cipher = RingCipher(READER)
    both = [EncryptedSerializer(cipher, plaintext="allow") for _ in range(2)]
    for serde in both:
        assert serde.loads_typed(("msgpack", ormsgpack.packb(1))) == 1
    assert [serde.plaintext_count for serde in both] == [2, 2]
    assert cipher.stats().plaintext == 2
