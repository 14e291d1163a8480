"""Metrics as Prometheus and OpenTelemetry read them, and docs/monitoring.md, which lists them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from sealpoint import errors
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
from sealpoint.errors import ConfigError, IntegrityError, MissingExtraError, SealpointError, UnknownKeyError
from sealpoint.metrics import METRICS, opentelemetry, prometheus
from sealpoint.serde import EncryptedSerializer
from tests.support.keys.rings import (
    NEW,
    OLD,
    make_cipher,
    replace,
    ring_text,
    seal_with_old,
    states_text,
    write,
    write_ring,
)

prometheus_client: Final = pytest.importorskip("prometheus_client")
parser: Final = pytest.importorskip("prometheus_client.parser")

PAGE: Final = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text(encoding="utf-8")
Labels = frozenset[tuple[str, str]]


def scraped(cipher: Any) -> dict[tuple[str, Labels], float]:
    """What a scrape of the text format finds, by name and labels."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(prometheus(cipher))
    text = prometheus_client.generate_latest(registry).decode()
    families = list(parser.text_string_to_metric_families(text))
    assert all(family.documentation for family in families)
    samples = [sample for family in families for sample in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples)
    return found


def measured(cipher: Any) -> dict[tuple[str, Labels], tuple[float, str]]:
    """What a reader of OpenTelemetry collects: values and units, by name and attributes."""
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    reader = pytest.importorskip("opentelemetry.sdk.metrics.export").InMemoryMetricReader()
    provider = sdk.MeterProvider([reader])
    opentelemetry(cipher, provider.get_meter("test"))
    data = reader.get_metrics_data()
    found = {
        (metric.name, frozenset(point.attributes.items())): (point.value, metric.unit)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    provider.shutdown()
    return found


def of(name: str, **labels: str) -> tuple[str, Labels]:
    return name, frozenset(labels.items())


@pytest.fixture
def used() -> RingCipher:
    """A cipher that has sealed, opened and refused."""
    cipher = make_cipher()
    tag, blob = cipher.seal("msgpack", b"value")
    cipher.open(tag, blob)
    cipher.open(tag, blob)
    cipher.open(*seal_with_old())
    for _ in range(3):
        with pytest.raises(IntegrityError):
            cipher.open(tag, blob[:-1] + b"\0" if blob[-1] else blob[:-1] + b"\1")
    return cipher


def test_counts_as_prometheus_reads_them(used: RingCipher) -> None:
    found = scraped(used)
    assert found[of("sealpoint_values_sealed_total")] == 1
    assert found[of("sealpoint_values_opened_total", key="current")] == 2
    assert found[of("sealpoint_values_opened_total", key="retired")] == 1
    assert found[of("sealpoint_refusals_total", error="IntegrityError")] == 3
    assert found[of("sealpoint_refusals_total", error="PlaintextError")] == 0
    assert found[of("sealpoint_active_key_info", key_id="new")] == 1
    assert found[of("sealpoint_ring_last_reload_successful")] == 1
    read_at = used.stats().ring.read_at.timestamp()
    assert found[of("sealpoint_ring_read_timestamp_seconds")] == pytest.approx(read_at, abs=1e-3)


def test_both_have_the_same_numbers(used: RingCipher) -> None:
    by_name = {metric.name: metric for metric in METRICS}
    found = measured(used)
    other = {
        (by_name[name].prometheus_name + "_total" * (by_name[name].kind == "counter"), labels): value
        for (name, labels), (value, _) in found.items()
    }
    assert other == pytest.approx(scraped(used))
    units = {name: unit for (name, _), (_, unit) in found.items()}
    assert units["sealpoint.values.sealed"] == "{value}"
    assert units["sealpoint.refusals"] == "{error}"
    assert units["sealpoint.ring.read_timestamp"] == "s"


def test_the_exporter_of_opentelemetry_gives_the_same_names(used: RingCipher) -> None:
    """So that rules for one serve for the other."""
    exporter = pytest.importorskip("opentelemetry.exporter.prometheus")
    sdk = pytest.importorskip("opentelemetry.sdk.metrics")
    reader = exporter.PrometheusMetricReader()
    provider = sdk.MeterProvider([reader])
    opentelemetry(used, provider.get_meter("test"))
    text = prometheus_client.generate_latest(prometheus_client.REGISTRY).decode()
    provider.shutdown()
    families = parser.text_string_to_metric_families(text)
    names = {sample.name for family in families for sample in family.samples if "sealpoint" in sample.name}
    assert names == {name for name, _ in scraped(used)}


def read_again(cipher: RingCipher) -> None:
    """An unknown key lets a cipher read its file at once."""
    with pytest.raises(UnknownKeyError):
        cipher.open("msgpack+cobblestone256@unknown", bytes(90))


def test_a_refused_ring_file(tmp_path: Path) -> None:
    file = write(tmp_path / "keys.toml", states_text(k1="active"))
    cipher = RingCipher(KeyRing.load(file))
    replace(file, "version = ")
    read_again(cipher)
    found = scraped(cipher)
    assert found[of("sealpoint_ring_last_reload_successful")] == 0
    assert found[of("sealpoint_ring_reload_failures_total", error="RingFileError")] == 1
    replace(file, states_text(k1="decrypt-only", k2="active"))
    read_again(cipher)
    found = scraped(cipher)
    assert found[of("sealpoint_ring_last_reload_successful")] == 1
    assert found[of("sealpoint_ring_reloads_total")] == 1
    assert found[of("sealpoint_active_key_info", key_id="k2")] == 1


def test_a_source_that_fails(tmp_path: Path) -> None:
    before = scraped(make_cipher())
    file = write_ring(tmp_path, ring_text(source='{ command = ["false"] }'))
    with pytest.raises(SealpointError):
        KeyRing.load(file)
    after = scraped(make_cipher())
    for name in (
        of("sealpoint_key_source_reads_total"),
        of("sealpoint_key_source_failures_total", error="SourceError"),
    ):
        assert after[name] == before[name] + 1


def test_a_serializer_stands_for_its_cipher() -> None:
    cipher = RingCipher(KeyRing([Key("old", OLD, KeyState.DECRYPT_ONLY)]))
    serde = EncryptedSerializer(cipher, plaintext="allow")
    serde.loads_typed(("null", b""))
    found = scraped(serde)
    assert found[of("sealpoint_values_plaintext_total")] == 1
    assert not any(name == "sealpoint_active_key_info" for name, _ in found)


def test_a_cipher_of_the_user_has_no_metrics() -> None:
    class Cipher:
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "own", plaintext

        def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
            return ciphertext

    for export in (prometheus, opentelemetry):
        with pytest.raises(ConfigError):
            export(EncryptedSerializer(Cipher()))


def test_nothing_secret_or_unbounded_is_exported(tmp_path: Path) -> None:
    """Labels are names of errors and one id: not what a hostile row says, and no path."""
    (tmp_path / "canary").mkdir()
    file = write_ring(tmp_path / "canary", ring_text())
    cipher = RingCipher(KeyRing.load(file))
    for number in range(50):
        with pytest.raises(SealpointError):
            cipher.open(f"msgpack+cobblestone256@hostile{number}", bytes(200))
    values = {value for _, labels in scraped(cipher) for _, value in labels}
    assert values <= {*vars(errors), "k1", "current", "retired"}
    text = repr([*scraped(cipher), *measured(cipher)])
    assert not any(part in text for part in ("canary", "hostile", NEW.hex(), str(tmp_path)))


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match="PROMETHEUS_MULTIPROC_DIR"):
        prometheus(make_cipher())


@pytest.mark.parametrize(
    ("export", "package"), [(prometheus, "prometheus_client"), (opentelemetry, "opentelemetry")]
)
def test_a_missing_package_is_named(export: Any, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError) as met:
        export(make_cipher())
    assert f"sealpoint[{package.partition('_')[0]}]" in met.value.hint


OVER_A_FORK: Final = """
import os, sys
from sealpoint.crypto import Key, KeyRing, KeyState, RingCipher
cipher = RingCipher(KeyRing([Key("k1", bytes(range(32)), KeyState.ACTIVE)]))
cipher.seal("msgpack", b"")
child = os.fork()
cipher.seal("msgpack", b"")
if child == 0:
    cipher.seal("msgpack", b"")
    os._exit(cipher.stats().sealed["k1"])
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), cipher.stats().sealed["k1"])
"""


def test_a_forked_process_continues_with_the_numbers_of_its_parent() -> None:
    done = subprocess.run([sys.executable, "-c", OVER_A_FORK], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "2"]


# --- the page ---------------------------------------------------------------------------------


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


NAMES = {metric.prometheus_name + "_total" * (metric.kind == "counter") for metric in METRICS}


def rules() -> Iterator[dict[str, Any]]:
    yaml = pytest.importorskip("yaml")
    (text,) = blocks("yaml")
    for group in yaml.safe_load(text)["groups"]:
        yield from group["rules"]


def test_the_page_lists_every_metric() -> None:
    listed = re.findall(r"^\| `(sealpoint_\w+)(?:\{\w+\})?` \| `([\w.]+)` \|", PAGE, re.MULTILINE)
    assert {name for name, _ in listed} == NAMES
    assert {name for _, name in listed} == {metric.name for metric in METRICS}


def test_rules_use_metrics_and_errors_that_are_exported_from_the_beginning() -> None:
    """Or the first error would be no increase."""
    found, exported = list(rules()), scraped(make_cipher())
    assert len(found) > 5
    for rule in found:
        assert set(re.findall(r"sealpoint_\w+", rule["expr"])) <= NAMES
        for name, pattern in re.findall(r'(sealpoint_\w+)\{error=~?"([^"]*)"', rule["expr"]):
            for error in pattern.split("|"):
                assert issubclass(getattr(errors, error), SealpointError)
                assert of(name, error=error) in exported
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]
    assert re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE) == [rule["alert"] for rule in found]
