"""Strategies for keys, rings, rows, values and ring files."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime

from hypothesis import strategies as st

from sealpoint.crypto import Key, KeyRing, KeyState
from sealpoint.keys.material import check_value

SUITES = ("cobblestone256", "xaes256gcm")
FORMS: dict[str, Callable[[bytes], bytes]] = {
    "raw": bytes,
    "hex": lambda material: material.hex().encode(),
    "hex line": lambda material: material.hex().upper().encode() + b"\n",
    "base64": base64.b64encode,
    "base64 line": lambda material: base64.b64encode(material) + b"\n",
}

suites = st.sampled_from(SUITES)
materials = st.binary(min_size=32, max_size=32)
key_ids = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,23}", fullmatch=True)
letters = st.sampled_from([chr(n) for n in range(0x21, 0x7F) if chr(n) != "+"])
inners = st.text(letters, min_size=1, max_size=16)  # what fits beside the longest suite, flags and key id
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
rows = st.none() | st.dictionaries(texts, texts, max_size=4)
values = st.binary(max_size=100) | st.binary(min_size=1).map(lambda part: (part * 40_000)[:40_000])
dates = st.none() | st.integers(0, 2**32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))


@st.composite
def keys(draw: st.DrawFn, key_id: str, state: KeyState) -> Key:
    """A key of one id and state, with dates that it may have."""
    gone = state is KeyState.DESTROYED
    return Key(
        key_id,
        b"" if gone else draw(materials),
        state,
        created=draw(dates),
        destroyed=draw(dates) if gone else None,
    )


@st.composite
def rings(draw: st.DrawFn) -> KeyRing:
    """A ring with an active key and up to three others, in any order."""
    ids = draw(st.lists(key_ids, min_size=1, max_size=4, unique=True))
    others = st.sampled_from([state for state in KeyState if state is not KeyState.ACTIVE])
    states = [KeyState.ACTIVE, *(draw(others) for _ in ids[1:])]
    made = [draw(keys(key_id, state)) for key_id, state in zip(ids, states, strict=True)]
    return KeyRing(draw(st.permutations(made)))


@st.composite
def ring_files(draw: st.DrawFn) -> tuple[KeyRing, str, dict[str, bytes]]:
    """A ring, a ring file that says the same, and the key files that it names with their contents."""
    ring, index = draw(rings()), draw(materials)
    legacy = Key("langgraph", draw(st.binary(min_size=16, max_size=16)), KeyState.DECRYPT_ONLY, suite="aes")
    extra = [legacy] if draw(st.booleans()) and "langgraph" not in ring.ids else []
    files: dict[str, bytes] = {}
    lines = ["version = 1", f'active = "{ring.require_active().id}"']
    for key in [*ring.keys, *extra]:
        lines += ["[[key]]", f'id = "{key.id}"', f'state = "{key.state.value}"']
        lines += [f"created = {key.created.isoformat()}"] if key.created else []
        lines += [f"destroyed = {key.destroyed.isoformat()}"] if key.destroyed else []
        lines += [f'suite = "{key.suite}"'] if key.suite else []
        if key.state is not KeyState.DESTROYED:
            form = "raw" if key.suite else draw(st.sampled_from(sorted(FORMS)))
            files[key.id] = FORMS[form](key.material)
            lines += [f'check = "{check_value(key.material)}"'] if draw(st.booleans()) else []
            lines += [f'source = {{ file = "keys.d/{key.id}" }}']
    lines += ["[[index]]", f'source = {{ inline = "{index.hex()}" }}']
    return KeyRing([*ring.keys, *extra], index=index), "\n".join(lines), files
