"""Metrics of a cipher for Prometheus and OpenTelemetry, with the same names in both.

`METRICS` describes each metric once. Attributes, which are labels in Prometheus, have few values: names of
error classes, and the id of the active key. No metric contains key material, a path or a message.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from sealpoint.crypto import RingCipher
from sealpoint.crypto.cipher import CipherStats
from sealpoint.errors import ConfigError, MissingExtraError
from sealpoint.serde import EncryptedSerializer

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, Observation
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import Collector

# Errors whose counters are exported even at 0, so that the first error shows as an increase.
ALWAYS: Final = (
    "DeletedCheckpointError",
    "EarlierWriteError",
    "IntegrityError",
    "KeyDestroyedError",
    "KeyDisabledError",
    "KeyUnavailableError",
    "NoActiveKeyError",
    "ParentLostError",
    "PlaintextError",
    "RolledBackError",
    "RowError",
    "UnboundValueError",
    "UnknownKeyError",
    "WritesLostError",
)

ALWAYS_TOLERATED: Final = (
    "EarlierWriteError",
    "ParentLostError",
    "RolledBackError",
    "RowError",
    "ThreadStoreBehindError",
    "ThreadStoreDownError",
    "ThreadStoreFullError",
    "ThreadStoreError",
    "ThreadStoreTimeoutError",
    "WritesLostError",
    "WrongThreadStoreError",
)
ALWAYS_OF_RELOADS: Final = ("RingFileError", "RingRollbackError", "SourceError")
ALWAYS_OF_SOURCES: Final = ("KeyUnavailableError", "SourceError", "SourceTimeoutError")


class Sample(NamedTuple):
    """One value of a metric.

    Attributes:
        value: The number.
        attributes: Names and values of the attributes, which are labels in Prometheus.
    """

    value: float
    attributes: dict[str, str] = {}  # noqa: RUF012 -- never changed


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: Name in OpenTelemetry. The name in Prometheus has underscores, and ends in unit and ``_total``.
        kind: ``counter`` or ``gauge``.
        unit: Unit in UCUM notation; empty for a number without a unit.
        text: Description of the metric.
        read: Returns the samples of the metric, all with the same attribute names.
    """

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    text: str
    read: Callable[[CipherStats], list[Sample]]

    @property
    def prometheus_name(self) -> str:
        """Name in Prometheus, without ``_total``."""
        return self.name.replace(".", "_") + ("_seconds" if self.unit == "s" else "")


def _by_error(counts: Mapping[str, int], always: Iterable[str]) -> list[Sample]:
    every = {**dict.fromkeys(always, 0), **counts}
    return [Sample(number, {"error": name}) for name, number in sorted(every.items())]


def _opened(stats: CipherStats) -> list[Sample]:
    retired = sum(stats.opened_retired.values())
    current = sum(stats.opened.values()) - retired
    return [Sample(max(current, 0), {"key": "current"}), Sample(retired, {"key": "retired"})]


def _time(moment: datetime | None) -> list[Sample]:
    return [] if moment is None else [Sample(moment.timestamp())]


def _active(stats: CipherStats) -> list[Sample]:
    key_id = stats.ring.active_id
    return [] if key_id is None else [Sample(1, {"key_id": key_id})]


METRICS: Final = (
    Metric(
        "sealpoint.values.sealed",
        "counter",
        "{value}",
        "Values that were sealed.",
        lambda stats: [Sample(sum(stats.sealed.values()))],
    ),
    Metric(
        "sealpoint.values.opened",
        "counter",
        "{value}",
        "Values that were opened, under the active or a staged key (current) or an older key (retired).",
        _opened,
    ),
    Metric(
        "sealpoint.values.plaintext",
        "counter",
        "{value}",
        "Values that are not sealed and were read because plaintext is allowed.",
        lambda stats: [Sample(stats.plaintext)],
    ),
    Metric(
        "sealpoint.unbound_writes",
        "counter",
        "{call}",
        "Calls that stored a checkpoint or writes not bound to their row, because of allow_write_with.",
        lambda stats: [Sample(stats.unbound)],
    ),
    Metric(
        "sealpoint.refusals",
        "counter",
        "{error}",
        "Errors raised instead of returning or storing a value.",
        lambda stats: _by_error(stats.refused, ALWAYS),
    ),
    Metric(
        "sealpoint.tolerated_errors",
        "counter",
        "{error}",
        "Errors that were logged and not raised.",
        lambda stats: _by_error(stats.tolerated, ALWAYS_TOLERATED),
    ),
    Metric(
        "sealpoint.ring.reloads",
        "counter",
        "{reload}",
        "Reloads of the ring file that put a changed ring into use.",
        lambda stats: [Sample(stats.ring.reloads)],
    ),
    Metric(
        "sealpoint.ring.reload_failures",
        "counter",
        "{error}",
        "Failed reloads: the ring file, or a source of its keys, was refused.",
        lambda stats: _by_error(stats.ring.refused, ALWAYS_OF_RELOADS),
    ),
    Metric(
        "sealpoint.ring.last_reload_successful",
        "gauge",
        "",
        "Whether the last attempt to read the ring file succeeded.",
        lambda stats: [Sample(float(stats.ring.error is None))],
    ),
    Metric(
        "sealpoint.ring.read_timestamp",
        "gauge",
        "s",
        "Time at which the ring in use was read.",
        lambda stats: _time(stats.ring.read_at),
    ),
    Metric(
        "sealpoint.active_key.info",
        "gauge",
        "",
        "Always 1; the attribute key_id is the id of the active key.",
        _active,
    ),
    Metric(
        "sealpoint.active_key.created_timestamp",
        "gauge",
        "s",
        "Time at which the active key was created.",
        lambda stats: _time(stats.ring.active_created),
    ),
    Metric(
        "sealpoint.key_source.reads",
        "counter",
        "{read}",
        "Requests of this process to a wrapper or a command for a key; repeated attempts count once.",
        lambda stats: [Sample(stats.sources.reads)],
    ),
    Metric(
        "sealpoint.key_source.failures",
        "counter",
        "{error}",
        "Requests to a wrapper or a command that did not provide the key.",
        lambda stats: _by_error(stats.sources.failed, ALWAYS_OF_SOURCES),
    ),
)


def prometheus(source: RingCipher | EncryptedSerializer) -> Collector:
    """Return a collector for a registry of prometheus_client.

    Args:
        source: The cipher, or a serializer that seals by a cipher.

    Raises:
        MissingExtraError: If prometheus_client is not installed.
        ConfigError: If prometheus_client runs in its multiprocess mode, which does not support collectors;
            or if the serializer's cipher is not a `RingCipher`.

    Example:
        >>> from prometheus_client import REGISTRY
        >>> from sealpoint import EncryptedSerializer
        >>> from sealpoint.metrics import prometheus
        >>> serde = EncryptedSerializer.from_key_file("keys.toml")
        >>> collector = prometheus(serde)
        >>> REGISTRY.register(collector)
        >>> REGISTRY.unregister(collector)
    """
    try:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
        from prometheus_client.registry import Collector
    except ImportError:
        raise MissingExtraError("prometheus-client", "prometheus") from None
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        raise ConfigError(
            "PROMETHEUS_MULTIPROC_DIR is set: in this mode prometheus_client collects only its own counters",
            hint="serve the metrics of each worker on a port of its own, or use OpenTelemetry",
        )
    cipher = _cipher_of(source)

    class CipherCollector(Collector):
        """Reads the statistics of the cipher at each collection."""

        def collect(self) -> Iterable[Family]:
            stats = cipher.stats()
            for metric in METRICS:
                samples = metric.read(stats)
                labels = sorted(samples[0].attributes) if samples else []
                make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
                family = make(metric.prometheus_name, metric.text, labels=labels)
                for number, attributes in samples:
                    family.add_metric([attributes[name] for name in labels], number)
                yield family

    return CipherCollector()


def opentelemetry(source: RingCipher | EncryptedSerializer, meter: Meter | None = None) -> None:
    """Create observable instruments for the metrics of a cipher.

    Args:
        source: The cipher, or a serializer that seals by a cipher.
        meter: Meter that creates the instruments; by default ``sealpoint`` of the global meter provider.

    Raises:
        MissingExtraError: If opentelemetry-api is not installed.
        ConfigError: If the serializer's cipher is not a `RingCipher`.

    Example:
        >>> from sealpoint import EncryptedSerializer
        >>> from sealpoint.metrics import opentelemetry
        >>> opentelemetry(EncryptedSerializer.from_key_file("keys.toml"))
    """
    try:
        from opentelemetry.metrics import Observation, get_meter
    except ImportError:
        raise MissingExtraError("opentelemetry-api", "opentelemetry") from None
    cipher = _cipher_of(source)
    meter = meter or get_meter("sealpoint", version("sealpoint"))

    def reading(metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _: [Observation(*sample) for sample in metric.read(cipher.stats())]

    for metric in METRICS:
        create = (
            meter.create_observable_counter if metric.kind == "counter" else meter.create_observable_gauge
        )
        create(metric.name, [reading(metric)], metric.unit, metric.text)


def _cipher_of(source: RingCipher | EncryptedSerializer) -> RingCipher:
    cipher = source.cipher if isinstance(source, EncryptedSerializer) else source
    if not isinstance(cipher, RingCipher):
        raise ConfigError(f"{type(cipher).__name__} keeps no statistics", hint="use RingCipher")
    return cipher
