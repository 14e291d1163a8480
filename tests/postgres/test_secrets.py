"""Values on Postgres that have the secret of their thread in the key: rotated and verified."""

from __future__ import annotations

from contextlib import closing
from hashlib import sha256

import pytest

from sealpoint.base.coordinates import VALUE
from sealpoint.crypto import Row
from sealpoint.databases.failures import Failure
from sealpoint.databases.postgres.rows import PostgresRows
from sealpoint.errors import SecretMissingError
from sealpoint.maintenance.rotate import outstanding, rotate
from sealpoint.maintenance.verify import verify
from tests.support.postgres import K1, K2, blobs, put_blobs


def secret_of(row: Row) -> bytes:
    return sha256(row["thread_id"].encode()).digest()


@pytest.mark.parametrize("is_bound", [True, False])
def test_values_with_a_secret_are_rotated_and_verified(url: str, is_bound: bool) -> None:
    names = ("thread_id", "checkpoint_ns", "channel", "version")
    mixed = []
    for blob in blobs(9):
        row = VALUE.row(dict(zip(names, blob[:4], strict=True)))
        sealed = K1.seal("msgpack", b"value", row=row if is_bound else None, secret=secret_of(row))
        mixed.append((*blob[:4], *sealed))
    put_blobs(url, mixed)
    with closing(PostgresRows(url, writable=True)) as store:
        failed = [event for event in rotate(store, K2) if isinstance(event, Failure)]
        assert {type(each.error) for each in failed} == {SecretMissingError}
        assert len(failed) == sum(count.rows for count in outstanding(store, "k2")) == 9
        events = [*rotate(store, K2, secret_of=secret_of), *verify(store, K2, secret_of=secret_of)]
        assert not [event for event in events if isinstance(event, Failure)]
        assert outstanding(store, "k2") == []
