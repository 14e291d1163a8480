"""What each kind of thread store does."""

from __future__ import annotations

from sealpoint.threads import Answer, Event, Head, Special, Spot, ThreadStore
from sealpoint.threads.store import REPLACED, line_of
from tests.unit.threads.events import FAR, deleted, leaving, mac, put, spot


def test_line_of_an_event() -> None:
    event = Event(7, leaving("1", "é")._replace(spot=spot('1",', "é\n", "n")), 9)
    assert line_of(event) == b'[7,1,"c3a92e2e2e2e2e2e2e2e2e2e2e2e2e2e","\\u00e9\\n","n","1\\",",9]'


def test_is_a_thread_store(store: ThreadStore) -> None:
    assert isinstance(store, ThreadStore)
    assert len(bytes.fromhex(store.identity)) == 16
    assert store.identities == {store.identity}


def test_empty_store_knows_nothing(store: ThreadStore) -> None:
    assert tuple(map(list, [store.newest("t", "")[0], store.find([spot("1")])[0]])) == ([], [])
    assert list(store.between("t", None, None, None).heads) == []
    assert (store.newest("t", "").clock, store.find([]).clock, store.claim) == (0, 0, 0)
    assert (store.end(), store.trimmed(), store.trim(FAR)) == (0, 0, 0)
    assert [*store.heads(), *store.events(FAR), *store.replaced(spot("1"))] == []
    store.delete_thread("t")
    store.append([])
    store.require_writable()
    assert store.end() == 0


def test_what_a_history_leaves(store: ThreadStore) -> None:
    history = [put("1"), put("2"), put("3"), put("2", "b"), put("2", ns="n"), put("1", thread_id="u")]
    history += [leaving("3"), put("4"), deleted("4")]
    clocks = [store.find([]).clock]
    for part in (history[:4], history[4:6], history[6:7], history[7:]):
        store.append(part)
        clocks.append(store.find([]).clock)
    assert clocks == sorted({*clocks})
    every = [put("1"), put("2", "b"), leaving("3"), put("2", ns="n")]

    newest = {("t", ""): [put("2", "b")], ("t", "n"): every[3:], ("u", ""): history[5:6], ("x", ""): []}
    for place, heads in newest.items():
        answer = store.newest(*place)
        assert ([*answer.heads], answer.clock) == (heads, clocks[-1])

    wanted = ["3", "1", "2", "4", "5", "1"]
    for spots, heads in (
        ([*map(spot, wanted)], [*every[:3], deleted("4")]),
        ([spot("4")], [deleted("4")]),
        ([spot("5")], []),
        ([spot("1", "u")], history[5:6]),
    ):
        answer = store.find(spots)
        assert (sorted(answer.heads), answer.clock) == (sorted(heads), clocks[-1])

    limits: list[tuple[str | None, str | None, str | None, list[Head]]] = [
        (None, None, None, every),
        ("", None, None, every[:3]),
        ("", "2", None, every[1:3]),
        ("", "2", "3", every[1:2]),
        ("", "2", "2\0", every[1:2]),
        ("", None, "2", every[:1]),
        (None, "2", "3", [every[1], every[3]]),
    ]
    for ns, least, below, heads in limits:
        answer = store.between("t", ns, least, below)
        assert (sorted(answer.heads), answer.clock) == (sorted(heads), clocks[-1])
    assert [*store.between("x", None, None, None).heads] == []

    found = [*store.events(store.end())]
    assert [event.head for event in found] == history
    assert [event.seq for event in found] == [*range(1, store.end() + 1)]
    assert [event.head for event in store.events(found[1].seq)] == history[:2]
    assert [*store.events(0)] == []
    assert len({event.at for event in found}) <= 2

    store.close()  # it is opened again
    assert [*store.heads()] == [*every[:3], deleted("4"), every[3], history[5]]
    for _ in range(2):
        store.delete_thread("t")
        assert store.end() == len(history) + 4
    assert [*store.newest("t", "").heads] == [*store.newest("t", "n").heads] == []
    store.append([put("3", "c")])
    assert [*store.newest("t", "").heads] == [put("3", "c")]


def test_earlier_contents(store: ThreadStore) -> None:
    store.append(
        [put("1", "a"), put("1", "b"), put("2", "x"), put("1", "c"), put("1", "b"), leaving("1", "b")]
    )
    assert [*store.replaced(spot("1"))] == [mac("c"), mac("a")]
    store.append([deleted("1")])
    assert [*store.replaced(spot("1"))] == [mac("b"), mac("c"), mac("a")]
    assert [*store.replaced(spot("2"))] == []
    store.append([put("3", str(number)) for number in range(REPLACED + 9)])
    assert [*store.replaced(spot("3"))] == [mac(str(number)) for number in range(REPLACED + 7, 7, -1)]


def test_adopting(store: ThreadStore) -> None:
    store.append([put("1"), put("2")])
    store.adopt(iter([put("1", "b"), deleted("2")]), frozenset(["f" * 32]), 1000, "restored")
    assert [*store.heads()] == [put("1", "b"), deleted("2")]
    assert store.identities == {store.identity, "f" * 32}
    clock = store.newest("t", "").clock
    assert clock >= 1000
    store.adopt([], frozenset(["f" * 32]), 0, "again")
    assert store.newest("t", "").clock >= clock
    assert len(store.identities) == 2
    store.append([put("3")])
    assert store.newest("t", "").clock > clock
    assert store.end() < 1000


def test_trimming(store: ThreadStore) -> None:
    """The last number is kept: otherwise the clock would go down, and numbers would be used again."""
    store.append([put("1"), put("2"), deleted("1"), put("3"), put("1", thread_id="u"), deleted("3")])
    clock = store.newest("t", "").clock
    assert (store.trim(0), store.trimmed()) == (0, 0)
    assert (store.trim(FAR), store.trimmed()) == (1, 1)
    assert [*store.heads()] == [put("2"), deleted("3"), put("1", thread_id="u")]
    assert ([*store.find([spot("1")]).heads], [*store.replaced(spot("1"))]) == ([], [])
    assert (store.trim(FAR), store.trimmed()) == (0, 1)
    assert store.newest("t", "").clock == clock
    store.append([put("4")])
    assert (store.trim(FAR), store.trimmed()) == (1, 2)
    assert store.newest("t", "").clock > clock


# --- special writes --------------------------------------------------------------------------------------


def special(task: str = "task", idx: int = -4, call: str = "a", since: int = -1) -> Special:
    return Special(0, task, idx, call.encode().ljust(8, b"."), since)


def of(answer: Answer, at: Spot) -> list[Special]:
    """What a store knows of the special writes to a checkpoint, without their numbers."""
    found = [events for each, events in answer.specials if each == at]
    assert len(found) <= 1
    return [event._replace(seq=0) for events in found for event in sorted(events)]


def test_special_writes_are_read_with_their_checkpoint(store: ThreadStore) -> None:
    one, two = special(idx=70_000), special("täsk, \0 2", -1, "b", 7)  # any position
    store.append([put("1"), put("2")])
    store.append_specials(spot("2"), [one, two])
    store.append_specials(spot("9"), [one])
    assert of(store.newest("t", ""), spot("2")) == [one, two]
    assert of(store.find([spot("2")]), spot("2")) == [one, two]
    assert of(store.find([spot("1"), spot("2"), spot("9")]), spot("9")) == [one]  # also without a head
    assert of(store.between("t", None, None, None), spot("2")) == [one, two]
    assert [*store.find([spot("1")]).specials] == []
    assert [(at, len(events)) for at, events in store.specials()] == [(spot("2"), 2), (spot("9"), 1)]


def test_special_writes_are_numbered(store: ThreadStore) -> None:
    assert store.last_special() == 0
    store.append_specials(spot("1"), [special(), special(idx=-3)])
    last = store.last_special()
    store.append_specials(spot("2"), [special()])
    assert 2 <= last < store.last_special()
    numbers = [event.seq for _, events in store.specials() for event in events]
    assert len({*numbers}) == 3
    assert max(numbers) == store.last_special()


def test_a_deletion_ends_special_writes(store: ThreadStore) -> None:
    """If the checkpoint is stored again, what is needed is what was stored with it."""
    store.append([put("1"), put("2")])
    for each in ("1", "2", "3"):  # the third was not recorded
        store.append_specials(spot(each), [special()])
    store.append([deleted("1"), put("1")])
    assert of(store.newest("t", ""), spot("2")) == [special()]
    assert of(store.find([spot("1")]), spot("1")) == []
    store.append_specials(spot("1"), [special(call="b")])
    assert of(store.find([spot("1")]), spot("1")) == [special(call="b")]
    store.delete_thread("t")
    assert [*store.specials()] == []
    store.append([put(each) for each in "123"])
    assert [*store.between("t", None, None, None).specials] == [*store.specials()] == []


def test_forgotten_checkpoints_have_no_special_writes(store: ThreadStore) -> None:
    store.append([put("1"), put("2")])
    store.append_specials(spot("1"), [special()])
    store.append_specials(spot("2"), [special()])
    last = store.last_special()
    store.append([deleted("1"), put("3")])
    assert store.trim(FAR) == 1
    assert [at for at, _ in store.specials()] == [spot("2")]
    store.append([deleted("2"), put("4")])  # the last event of a special write is one of its own
    assert store.trim(FAR) == 1
    assert [*store.specials()] == []
    store.append_specials(spot("4"), [special()])
    assert store.last_special() > last
