"""Events that a run over values reports after each batch, and the failures of a whole run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sealpoint.admin.results.reasons import Reason, applying
from sealpoint.errors import IntegrityError, KeyRingError

if TYPE_CHECKING:
    from sealpoint.crypto.cipher import RingCipher

MAX_KEPT: Final = 1000
MAX_CAUSES: Final = 20
# Characters kept of a text in a failed row: an attacker may write texts of many megabytes.
MAX_CHARS: Final = 1000


class Failure(NamedTuple):
    """A value that could not be opened, and that the run therefore did not change.

    Attributes:
        table: Name of the table, or ``checkpoints.metadata``; see `Column.label`.
        place: Dict of the columns of the row's primary key: their values by their names.
        tag: Type tag of the value, from the column ``type``.
        error: The error that opening the value raised.
    """

    table: str
    place: dict[str, Any]
    tag: Any
    error: Exception


def bare(error: Exception) -> Exception:
    """Return an error without its traceback and cause, which would keep bytes of a value in memory."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _cut(value: Any) -> Any:
    return value[:MAX_CHARS] if isinstance(value, str | bytes) and len(value) > MAX_CHARS else value


class Failures:
    """The failures of a run.

    With ``may_repeat``, the run may read a value several times; hashes of the places ensure that each failed
    value is counted once. ``cipher`` is the run's cipher: its statistics say which keys have opened values.
    """

    def __init__(self, *, may_repeat: bool = False, cipher: RingCipher | None = None) -> None:
        self.count, self.cipher = 0, cipher
        self.kept: list[Failure] = []
        self.causes: dict[str, Counter[str]] = {}  # by hint; limited, as an attacker may cause any number
        self.unopened = Counter[str]()  # number of values that failed authentication, by key id
        self.lacks_keys_only = True  # as long as it is true, another ring might open all values
        self._marks = set[int]() if may_repeat else None

    def add(self, failed: Failure) -> bool:
        """Count a failure; return whether it is the first failure of its value."""
        if self._marks is not None:
            mark = hash(repr((failed.table, failed.place)))  # of the repr, because hash(-1) == hash(-2)
            if mark in self._marks:
                return False
            self._marks.add(mark)
        self.count += 1
        if len(self.kept) < MAX_KEPT:
            place = {name: _cut(value) for name, value in failed.place.items()}
            self.kept.append(Failure(failed.table, place, _cut(failed.tag), bare(failed.error)))
        from sealpoint.admin.results.tags import classify

        _, tag = classify(failed.tag)
        if tag and tag.key_id and isinstance(failed.error, IntegrityError):
            self.unopened[tag.key_id] += 1
        elif not isinstance(failed.error, KeyRingError):
            self.lacks_keys_only = False
        hint, cause = getattr(failed.error, "hint", ""), str(failed.error)
        if cause not in self.causes.get(hint, {}) and sum(map(len, self.causes.values())) >= MAX_CAUSES:
            hint, cause = hint if hint in self.causes else "", "other causes"
        self.causes.setdefault(hint, Counter())[cause] += 1
        return True

    @property
    def foreign(self) -> list[str]:
        """Ids of keys whose material in the ring seems to differ from the database's, see `foreign_keys`."""
        if self.cipher is None:
            return []
        opened = dict.fromkeys(self.cipher.stats().opened)
        return foreign_keys({**self.unopened, **opened}, self.cipher.ring.active_id)


# If some values open, up to this many failures under the active key count as damaged or forged rows.
MAX_DAMAGED: Final = 3


def foreign_keys(found: Mapping[str, int | None], active_id: str | None) -> list[str]:
    """Return the ids of keys whose material in the ring seems not to be the material that the database uses.

    ``found`` maps the id of a key to the number of its values that failed authentication, or to ``None`` if
    one of its values opens. If any value opens under any key, the ring is that of the database: then
    only the active key can be returned, if over `MAX_DAMAGED` values failed, as it seals new values.
    """
    is_ours = None in found.values()
    return [
        key_id
        for key_id, unopened in found.items()
        if unopened and (not is_ours or (key_id == active_id and unopened > MAX_DAMAGED))
    ]


def failure_reasons(failures: Failures) -> list[Reason]:
    """Return the reasons why ``ok`` is not true after failures: ``KEYS_MISSING`` if only keys are missing."""
    foreign = failures.foreign
    failed = not failures.lacks_keys_only or failures.unopened.keys() - {*foreign}
    lacking = failures.count and not failed and not foreign
    return applying({Reason.VALUES_FAILED: failed, Reason.KEYS_MISSING: lacking, Reason.NONE_OPENS: foreign})


class Progress(NamedTuple):
    """Progress of a run, which it reports after each batch.

    Attributes:
        table: Name of the table that the batch was read from.
        rows: Number of values examined so far in this pass, over all tables.
        total: Number of values to examine, counted when the pass began.
        changed: Number of values changed so far in the run.
        raced: Number of values not replaced so far, because an agent changed the value meanwhile.
        size_bytes: Number of bytes of the values examined so far in the run.
        lock_seconds: Number of seconds for which the run has held the write lock since the last batch.
        plaintext: Number of unsealed values that the run has sealed so far.
        legacy: Number of values under LANGGRAPH_AES_KEY that the run has resealed so far.
    """

    table: str
    rows: int
    total: int
    changed: int
    raced: int
    size_bytes: int
    lock_seconds: float
    plaintext: int = 0
    legacy: int = 0


# Used as the table's name while the run waits until replicas have caught up.
WAITING: Final = "replicas"
Event = Progress | Failure
# A run: an iterator that works while its events are consumed, and ends when it is closed.
Events = Generator[Event, None, None]
