"""Keys, certificates, tokens and kubeconfigs of one cluster, made anew for every start.

Each component goes by a name of its own, so that the API server can tell in its audit log who asked for what; all may
do everything.

Everything lands in files readable by this user alone; nothing here outlives the cluster.
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
    # Here and not above: most of those who import this only want names and paths.
    from extender.kube.certificates import Authority, new_key, pem, write_secret

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
    from extender.kube import certificates

    authority = credentials.ca_certificate.read_bytes()
    certificates.write_kubeconfig(path, context=context, server=server, authority=authority, token=credentials.token)
