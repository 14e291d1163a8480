"""Keys, rings and ring files for the tests of ``sealpoint.crypto``. All of it is public."""

from __future__ import annotations

from pathlib import Path

from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher

NEW = bytes(range(32))
OLD = bytes(range(32, 64))
OTHER = bytes(range(64, 96))
SECRET = bytes(range(96, 128))
SUITES = ("cobblestone256", "xaes256gcm")


def make_ring(old: KeyState = KeyState.DECRYPT_ONLY) -> KeyRing:
    """A ring with the active key ``new`` and a second one, ``old``, in a state to choose."""
    material = b"" if old is KeyState.DESTROYED else OLD
    return KeyRing([Key("new", NEW, KeyState.ACTIVE), Key("old", material, old)])


def make_cipher(suite: str = "cobblestone256") -> RingCipher:
    return RingCipher(make_ring(), suite)


def seal_with_old(suite: str = "cobblestone256") -> tuple[str, bytes]:
    """A value that was sealed while ``old`` was the active key."""
    return RingCipher(KeyRing([Key("old", OLD, KeyState.ACTIVE)]), suite).seal("msgpack", b"value")


def write(path: Path, data: str | bytes, mode: int = 0o600) -> Path:
    """Write a file with a mode of its own, whatever the umask is."""
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    path.chmod(mode)
    return path


def ring_text(*lines: str, source: str = "{ file = 'k1.key' }", state: str = "active") -> str:
    """A ring file with one key and, after its other fields, more lines."""
    head = ["version = 1", "active = 'k1'"] if state == "active" else ["version = 1"]
    key = ["[[key]]", "id = 'k1'", f"state = '{state}'", f"source = {source}"]
    return "\n".join([*head, *key, *lines, ""])


def write_ring(folder: Path, text: str, *, material: bytes = NEW) -> Path:
    """Write a ring file, and beside it the key file that `ring_text` names by default."""
    write(folder / "k1.key", material)
    return write(folder / "keys.toml", text)


def material_of(key_id: str) -> bytes:
    """Material that differs from id to id."""
    return key_id.encode().ljust(32, b".")


def states_text(**states: str) -> str:
    """A ring file with keys of these states, in order; their material is inline, by `material_of`."""
    lines = ["version = 1"]
    lines += [f"active = '{key_id}'" for key_id, state in states.items() if state == "active"]
    for key_id, state in states.items():
        lines += ["[[key]]", f"id = '{key_id}'", f"state = '{state}'"]
        source = f"source = {{ inline = '{material_of(key_id).hex()}' }}"
        lines += [] if state == "destroyed" else [source]
    return "\n".join([*lines, ""])


def replace(path: Path, text: str, mode: int = 0o600) -> Path:
    """Put a new file in the place of another, as tools that edit ring files do."""
    return write(path.with_suffix(".new"), text, mode).replace(path)
