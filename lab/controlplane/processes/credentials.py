"""Keys, certificates, tokens and kubeconfigs of one cluster, created at every start.

Each component has its own user name, so that the API server's audit log shows which component sent a request. Every
component may do everything.

All files are readable by the current user only and are removed with the cluster.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ADMIN = "admin"
SERVICE, SCHEDULER, CONTROLLERS, KUBELETS = "escher", "system:kube-scheduler", "system:kube-controller-manager", "kwok"
COMPONENTS = (SERVICE, SCHEDULER, CONTROLLERS, KUBELETS)


@dataclass(frozen=True)
class Credentials:
    """Paths of files for kube-apiserver, a client's token, and `tokens` by component."""

    ca_certificate: Path
    server_certificate: Path
    server_key: Path
    service_account_key: Path
    token_file: Path
    token: str
    tokens: Mapping[str, str]


def make(folder: Path) -> Credentials:
    """Creates a CA, a certificate for 127.0.0.1 and localhost, a signing key, and tokens."""
    # Imported here, because most modules that import this one need only names and paths.
    from extender.kube.client.certificates import Authority, new_key, pem, write_secret

    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = Authority.make("escher-cluster-ca")
    server, server_key = authority.issue("kube-apiserver")
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
    write_secret(credentials.ca_certificate, authority.certificate)
    write_secret(credentials.server_certificate, server)
    write_secret(credentials.server_key, server_key)
    write_secret(credentials.service_account_key, pem(new_key()))
    lines = [f'{of},{user},{user},"system:masters"\n' for user, of in {ADMIN: token, **credentials.tokens}.items()]
    write_secret(credentials.token_file, "".join(lines).encode())
    return credentials


def write_component_kubeconfigs(
    folder: Path, *, context: str, server: str, credentials: Credentials
) -> dict[str, Path]:
    """Writes a kubeconfig for each component; returns the paths by user name."""
    written = {}
    for user, token in credentials.tokens.items():
        written[user] = kubeconfig_of(folder, user)
        own = replace(credentials, token=token)
        write_kubeconfig(written[user], context=context, server=server, credentials=own)
    return written


def kubeconfig_of(folder: Path, component: str) -> Path:
    """The path at which `write_component_kubeconfigs` writes the component's kubeconfig."""
    return folder / f"{component.rpartition(':')[2]}.kubeconfig"


def write_kubeconfig(path: Path, *, context: str, server: str, credentials: Credentials) -> None:
    """Writes a kubeconfig for kubectl and client libraries: https, CA data and the token."""
    from extender.kube.client import certificates

    authority = credentials.ca_certificate.read_bytes()
    certificates.write_kubeconfig(path, context=context, server=server, authority=authority, token=credentials.token)
