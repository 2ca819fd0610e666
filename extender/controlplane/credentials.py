"""Keys, certificates, tokens and kubeconfigs of one cluster, made anew for every start.

Each component goes by a name of its own, so that the API server can tell in its audit log who asked for what; all may
do everything.

Everything lands in files readable by this user alone; nothing here outlives the cluster.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ADMIN = "admin"
SERVICE, SCHEDULER, CONTROLLERS, KUBELETS = "escher", "system:kube-scheduler", "system:kube-controller-manager", "kwok"
COMPONENTS = (SERVICE, SCHEDULER, CONTROLLERS, KUBELETS)


@dataclass(frozen=True)
class Credentials:
    """Paths of what kube-apiserver reads, and what a client needs; `tokens`: of the components, by their names."""

    ca_certificate: Path
    server_certificate: Path
    server_key: Path
    service_account_key: Path
    token_file: Path
    token: str
    tokens: Mapping[str, str]


def make(folder: Path) -> Credentials:
    """A certificate authority, a certificate for 127.0.0.1 and localhost, a signing key, and a token for everybody."""
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
        tokens={user: secrets.token_urlsafe(32) for user in COMPONENTS},
    )
    _write(credentials.ca_certificate, authority)
    _write(credentials.server_certificate, server)
    _write(credentials.server_key, _pem(server_key))
    _write(credentials.service_account_key, _pem(ec.generate_private_key(ec.SECP256R1())))
    lines = [f'{of},{user},{user},"system:masters"\n' for user, of in {ADMIN: token, **credentials.tokens}.items()]
    _write(credentials.token_file, "".join(lines).encode())
    return credentials


def write_component_kubeconfigs(
    folder: Path, *, context: str, server: str, credentials: Credentials
) -> dict[str, Path]:
    """A kubeconfig for each component, by its name."""
    written = {}
    for user, token in credentials.tokens.items():
        written[user] = kubeconfig_of(folder, user)
        own = replace(credentials, token=token)
        write_kubeconfig(written[user], context=context, server=server, credentials=own)
    return written


def kubeconfig_of(folder: Path, component: str) -> Path:
    """Where `write_component_kubeconfigs` puts a component's."""
    return folder / f"{component.rpartition(':')[2]}.kubeconfig"


def write_kubeconfig(path: Path, *, context: str, server: str, credentials: Credentials) -> None:
    """A kubeconfig for kubectl and every client library: https with CA data, and the token of these credentials."""
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
