"""Keys, certificates, the admin's token and the kubeconfig of one cluster, made anew for every start.

Everything lands in files readable by this user alone; nothing here outlives the cluster.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Credentials:
    """Paths of what kube-apiserver reads, and the two values a client needs."""

    ca_certificate: Path
    server_certificate: Path
    server_key: Path
    service_account_key: Path
    token_file: Path
    token: str


def make(folder: Path) -> Credentials:
    """A certificate authority, a certificate for 127.0.0.1 and localhost, a signing key, and a token for the admin."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "escher-cluster-ca")])
    authority = _sign(authority_name, authority_name, authority_key, authority_key, is_authority=True)
    server_key = ec.generate_private_key(ec.SECP256R1())
    server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    server = _sign(server_name, authority_name, server_key, authority_key, is_authority=False)
    token = secrets.token_urlsafe(32)
    credentials = Credentials(
        ca_certificate=folder / "ca.crt",
        server_certificate=folder / "server.crt",
        server_key=folder / "server.key",
        service_account_key=folder / "service-account.key",
        token_file=folder / "tokens.csv",
        token=token,
    )
    _write(credentials.ca_certificate, authority)
    _write(credentials.server_certificate, server)
    _write(credentials.server_key, _pem(server_key))
    _write(credentials.service_account_key, _pem(ec.generate_private_key(ec.SECP256R1())))
    _write(credentials.token_file, f'{token},admin,admin,"system:masters"\n'.encode())
    return credentials


def write_kubeconfig(path: Path, *, context: str, server: str, credentials: Credentials) -> None:
    """A kubeconfig for kubectl and every client library: https with CA data, and the admin's token."""
    authority = base64.b64encode(credentials.ca_certificate.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [{"name": context, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": context, "user": {"token": credentials.token}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context, "namespace": "default"}}],
    }
    _write(path, yaml.safe_dump(config, sort_keys=False).encode())


def _sign(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signing_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        # Python's OpenSSL refuses a chain without key identifiers under VERIFY_X509_STRICT, the default since 3.13.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=is_authority,
                crl_sign=is_authority,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if not is_authority:
        names: list[x509.GeneralName] = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False).add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
    return builder.sign(signing_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # The older of the two formats: kube-apiserver takes the public half of a signing key from that one only.
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
