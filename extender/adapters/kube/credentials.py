"""Credentials: where the API server is and how to be let in, from the `kubernetes` client's own configuration.

Knows kubeconfig files (tokens, certificates, exec plugins, OIDC) and the service account of a pod, through the client's
loaders. Credentials end: a service account's token is read again every minute, an exec plugin is asked again before its
answer expires, and everything is loaded anew when the API server says 401. Must not know requests.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import structlog
from kubernetes.aio import config as client_config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config.kube_config import KubeConfigLoader

from extender.app.ports import Unavailable

_log = structlog.get_logger(__name__)

_RENEW_BEFORE = 60.0
_RENEW_AT_MOST_EVERY = 10.0

Loader = Callable[[Configuration], Awaitable[float | None]]
"""Fills the configuration; answers when it should be filled again (seconds since the epoch), or None."""


class BadConfiguration(Exception):
    """There is no usable configuration of a cluster; `str()` says what is missing, for whoever set it up."""


def from_kubeconfig(path: Path | None = None, context: str | None = None) -> Loader:
    """A loader for that file; None is $KUBECONFIG or ~/.kube/config."""

    async def load(configuration: Configuration) -> float | None:
        file = _existing(path)
        loader: KubeConfigLoader = await client_config.load_kube_config(  # type: ignore[no-untyped-call]
            file, context=context, client_configuration=configuration, persist_config=False
        )
        # The client logs a plugin's failure and goes on without credentials.
        if "exec" in (loader._user or ()) and not configuration.api_key and not configuration.cert_file:
            raise BadConfiguration("the credentials plugin (exec) of the kubeconfig gave none; the log has its error")
        expiry = getattr(loader, "exec_plugin_expiry", None)
        return None if expiry is None else float(expiry.timestamp())

    return load


def _existing(path: Path | None) -> str:
    file = str(path) if path is not None else os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    # $KUBECONFIG may name several, to be merged; those that are missing are passed over.
    if not any(Path(part).expanduser().exists() for part in file.split(os.pathsep) if part):
        raise BadConfiguration(f"there is no kubeconfig at {file}")
    return file


def from_service_account() -> Loader:
    """A loader for the service account of the pod that this process runs in."""

    async def load(configuration: Configuration) -> float | None:
        client_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return None

    return load


def default_loader(kubeconfig: Path | None = None, context: str | None = None) -> Loader:
    """The kubeconfig that is named, else the pod's service account if this is a pod, else the user's kubeconfig."""
    if kubeconfig is None and not os.environ.get("KUBECONFIG") and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return from_service_account()
    return from_kubeconfig(kubeconfig, context)


class Credentials:
    """One cluster's address, TLS context and bearer token; make one with `load`."""

    def __init__(self, loader: Loader, now: Callable[[], float] = time.time) -> None:
        self._loader = loader
        self._now = now
        self._lock = asyncio.Lock()
        self._configuration: Any = None
        self._renew_at: float | None = None
        self._loaded_at = 0.0
        self.trust: ssl.SSLContext | None = None
        """For https; None for http. Renewed certificates are loaded into this same context."""

    @classmethod
    async def load(cls, loader: Loader, now: Callable[[], float] = time.time) -> Credentials:
        """Loaded and ready. Raises BadConfiguration."""
        credentials = cls(loader, now)
        await credentials._load()
        return credentials

    @property
    def address(self) -> str:
        """`https://host:port`, perhaps with a path; no slash at the end."""
        return str(self._configuration.host).rstrip("/")

    @property
    def server_name(self) -> str | None:
        """The name that the server's certificate must be for, where it is not the one in the address."""
        return self._configuration.tls_server_name or None

    @property
    def proxy(self) -> str | None:
        """The proxy of the kubeconfig, else of the environment (HTTPS_PROXY, NO_PROXY)."""
        if self._configuration.proxy:
            return str(self._configuration.proxy)
        parts = urlsplit(self.address)
        if proxy_bypass(parts.netloc) or proxy_bypass(parts.hostname or ""):
            return None
        return getproxies().get(parts.scheme)

    async def authorization(self) -> str | None:
        """The value of the Authorization header as of now; None where certificates alone let us in.

        Raises Unavailable where a token cannot be had.
        """
        if self._renew_at is not None and self._now() >= self._renew_at:
            await self.renew(await self._token())
        return await self._token()

    async def renew(self, rejected: str | None) -> bool:
        """Whether there is something newer to try than `rejected`, the header that was turned away.

        Loads everything anew unless that was done moments ago; calls that overlap share one load.
        """
        async with self._lock:
            if await self._token() != rejected:
                return True
            if self._now() - self._loaded_at < _RENEW_AT_MOST_EVERY:
                return False
            try:
                await self._load()
            except BadConfiguration as error:
                self._loaded_at = self._now()
                self._renew_at = None if self._renew_at is None else self._now() + _RENEW_AT_MOST_EVERY
                _log.warning("credentials could not be renewed; going on with the old ones", why=str(error))
                return False
            # A client certificate that was renewed leaves no trace in the header.
            return await self._token() != rejected or bool(self._configuration.cert_file)

    async def _load(self) -> None:
        configuration = Configuration()
        try:
            expires = await self._loader(configuration)
            self.trust = _trust(configuration, self.trust)
        except BadConfiguration:
            raise
        except Exception as error:  # the client's loaders let everything through: YAML, OSError, TypeError, ssl ...
            raise BadConfiguration(f"the cluster's configuration cannot be used: {error}") from error
        self._configuration = configuration
        self._loaded_at = self._now()
        if expires is not None:
            expires = max(expires - _RENEW_BEFORE, self._loaded_at + _RENEW_AT_MOST_EVERY)
        self._renew_at = expires

    async def _token(self) -> str | None:
        try:
            # Calls the client's hook, which reads a service account's token again every minute.
            token = await self._configuration.get_api_key_with_prefix("BearerToken")
        except (OSError, client_config.ConfigException) as error:
            raise Unavailable(f"the token of the service account cannot be read: {error}") from error
        return None if token is None else str(token).strip()


def _trust(configuration: Any, existing: ssl.SSLContext | None) -> ssl.SSLContext | None:
    if not str(configuration.host).startswith("https"):
        return None
    if existing is None:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
        # Python 3.13 wants key identifiers in every certificate; many clusters' own authorities leave them out, and Go,
        # which everybody else's clients are written in, does not ask for them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
    else:
        context = existing
        if configuration.ssl_ca_cert or configuration.ca_cert_data:
            context.load_verify_locations(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    return context
