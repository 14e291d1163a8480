"""A public authority in small: what Sigstore and GitHub sign for a workflow, with keys made for one test.

It issues a certificate for a workflow's run, records it in a certificate log, signs a statement, and
records the signature in a transparency log of one entry. Verifiers take its keys as ``--trust-config``.
Sources: RFC 6962, sections 2.1 and 3.2; DSSE 1.0; Sigstore's bundle format 0.3; Fulcio's list of extensions.
"""

from __future__ import annotations

import hashlib
import json
import struct
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

ISSUER: Final = "https://token.actions.githubusercontent.com"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
FULCIO: Final = "1.3.6.1.4.1.57264.1"
SCT_LIST: Final = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
SIGNED: Final = START + timedelta(days=30)
ORIGIN: Final = "log.example.org"

Key = ec.EllipticCurvePrivateKey


def new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def spki(key: Key) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def key_id(key: Key) -> bytes:
    return hashlib.sha256(spki(key)).digest()


def sign(key: Key, data: bytes) -> bytes:
    return key.sign(data, ec.ECDSA(SHA256()))


def text(data: bytes) -> str:
    return b64encode(data).decode()


def utf8_string(value: str) -> bytes:
    """A short UTF8String in DER; of two length bytes, if it needs them."""
    data = value.encode()
    return b"\x0c" + (bytes([len(data)]) if len(data) < 128 else b"\x81" + bytes([len(data)])) + data


class Authority:
    """The certificate authority and both logs."""

    def __init__(self) -> None:
        self.ca_key, self.certificate_log_key, self.log_key = new_key(), new_key(), new_key()
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self.root = (
            self._builder(self.ca_key, timedelta(days=3650))
            .subject_name(self.name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self.ca_key.public_key()), critical=False
            )
            .sign(self.ca_key, SHA256())
        )

    def trust_config(self) -> dict[str, Any]:
        """What a verifier must know of this authority."""
        valid = {"start": START.isoformat()}
        service = {"majorApiVersion": 1, "operator": "test", "validFor": valid, "url": f"https://{ORIGIN}"}
        return {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [_log(self.log_key, valid)],
                "ctlogs": [_log(self.certificate_log_key, valid)],
                "certificateAuthorities": [
                    {
                        "subject": {"organization": "test", "commonName": "test authority"},
                        "uri": f"https://{ORIGIN}",
                        "certChain": {
                            "certificates": [{"rawBytes": text(self.root.public_bytes(Encoding.DER))}]
                        },
                        "validFor": valid,
                    }
                ],
                "timestampAuthorities": [],
            },
            "signingConfig": {
                "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                "caUrls": [service],
                "rekorTlogUrls": [service],
                "rekorTlogConfig": {"selector": "ANY"},
                "tsaConfig": {"selector": "ANY"},
            },
        }

    def attest(
        self, statement: Mapping[str, Any], workflow: str, claims: Mapping[int, str]
    ) -> dict[str, Any]:
        """Sign a statement as a run of a workflow; a Sigstore bundle.

        Args:
            statement: An in-toto statement.
            workflow: The address of the workflow's file at its ref, which is the identity.
            claims: What the certificate says of the run, by the last number of Fulcio's extension.
        """
        key = new_key()
        certificate = self._certify(key, workflow, claims)
        payload = json.dumps(statement).encode()
        signature = sign(
            key, b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)
        )
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": text(certificate.public_bytes(Encoding.DER))},
                "tlogEntries": [self._record(payload, signature, certificate)],
            },
            "dsseEnvelope": {
                "payload": text(payload),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [{"sig": text(signature)}],
            },
        }

    def _builder(self, key: Key, lifetime: timedelta) -> x509.CertificateBuilder:
        begin = START if key is self.ca_key else SIGNED - timedelta(minutes=1)
        return (
            x509.CertificateBuilder()
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + lifetime)
        )

    def _certify(self, key: Key, workflow: str, claims: Mapping[int, str]) -> x509.Certificate:
        """Issue a certificate for ten minutes, with the receipt of the certificate log."""
        builder = (
            self._builder(key, timedelta(minutes=10))
            .subject_name(x509.Name([]))
            .add_extension(
                x509.SubjectAlternativeName([x509.UniformResourceIdentifier(workflow)]), critical=True
            )
            .add_extension(_usage(certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.ca_key.public_key()), critical=False
            )
        )
        for number, value in {1: ISSUER, 8: ISSUER, **claims}.items():
            data = value.encode() if number <= 6 else utf8_string(value)
            extension = x509.UnrecognizedExtension(ObjectIdentifier(f"{FULCIO}.{number}"), data)
            builder = builder.add_extension(extension, critical=False)
        body = builder.sign(self.ca_key, SHA256()).tbs_certificate_bytes
        milliseconds = int(SIGNED.timestamp() * 1000)
        entry = key_id(self.ca_key) + len(body).to_bytes(3, "big") + body
        signed = struct.pack("!BBQH", 0, 0, milliseconds, 1) + entry + bytes(2)
        signature = sign(self.certificate_log_key, signed)
        receipt = struct.pack(
            "!B32sQHBBH", 0, key_id(self.certificate_log_key), milliseconds, 0, 4, 3, len(signature)
        )
        receipts = _sized(_sized(receipt + signature))
        receipts_der = b"\x04" + bytes([len(receipts)]) + receipts
        return builder.add_extension(x509.UnrecognizedExtension(SCT_LIST, receipts_der), critical=False).sign(
            self.ca_key, SHA256()
        )

    def _record(self, payload: bytes, signature: bytes, certificate: x509.Certificate) -> dict[str, Any]:
        """Record a signature as the only entry of the transparency log."""
        digest = {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()}
        verifier = text(certificate.public_bytes(Encoding.PEM))
        signatures = [{"signature": text(signature), "verifier": verifier}]
        spec = {"envelopeHash": digest, "payloadHash": digest, "signatures": signatures}
        body = json.dumps({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec}).encode()
        root = hashlib.sha256(b"\0" + body).digest()
        note = f"{ORIGIN}\n1\n{text(root)}\n"
        mark = text(key_id(self.log_key)[:4] + sign(self.log_key, note.encode()))
        time = int(SIGNED.timestamp())
        promised = {
            "body": text(body),
            "integratedTime": time,
            "logID": key_id(self.log_key).hex(),
            "logIndex": 0,
        }
        canonical = json.dumps(promised, sort_keys=True, separators=(",", ":")).encode()
        return {
            "logIndex": "0",
            "logId": {"keyId": text(key_id(self.log_key))},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(time),
            "inclusionPromise": {"signedEntryTimestamp": text(sign(self.log_key, canonical))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": text(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n\N{EM DASH} {ORIGIN} {mark}\n"},
            },
            "canonicalizedBody": text(body),
        }


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def _log(key: Key, valid: Mapping[str, str]) -> dict[str, Any]:
    public = {"rawBytes": text(spki(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": valid}
    identity = {"keyId": text(key_id(key))}
    return {
        "baseUrl": f"https://{ORIGIN}",
        "hashAlgorithm": "SHA2_256",
        "publicKey": public,
        "logId": identity,
    }


def _usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        key_cert_sign=certificates,
        crl_sign=certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
