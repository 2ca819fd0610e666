"""Certificates and kubeconfigs for an API server on loopback, made new for each cluster.

Only the current user can read the files.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
from pathlib import Path
from typing import Self

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LASTS = datetime.timedelta(days=30)


class Authority:
    """A certificate authority. `certificate`: its own, as PEM."""

    def __init__(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> None:
        self._name, self._key = name, key
        self.certificate = self._sign(name, key, is_authority=True)

    @classmethod
    def make(cls, name: str) -> Self:
        return cls(_named(name), new_key())

    def issue(self, name: str) -> tuple[bytes, bytes]:
        """A server's certificate for 127.0.0.1 and localhost, and its key, both as PEM."""
        key = new_key()
        return self._sign(_named(name), key, is_authority=False), pem(key)

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        of_signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + _LASTS)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            # Python's OpenSSL refuses a chain without key identifiers under VERIFY_X509_STRICT, the default since 3.13.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(of_signer, critical=False)
            .add_extension(_usage(is_authority=is_authority), critical=True)
        )
        if not is_authority:
            names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False).add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # The older of two formats: kube-apiserver reads the public half of a signing key from that one only.
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def write_kubeconfig(path: Path, *, context: str, server: str, authority: bytes, token: str) -> None:
    """Writes a kubeconfig for any client library: https with the authority, and a token."""
    known = base64.b64encode(authority).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [{"name": context, "cluster": {"server": server, "certificate-authority-data": known}}],
        "users": [{"name": context, "user": {"token": token}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context, "namespace": "default"}}],
    }
    write_secret(path, yaml.safe_dump(config, sort_keys=False).encode())


def write_secret(path: Path, content: bytes) -> None:
    """Writes the file, readable by the current user only."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
