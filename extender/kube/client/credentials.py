"""Credentials: the API server's address and access, from the `kubernetes` client's configuration.

The client's loaders read kubeconfig files (tokens, certificates, exec plugins, OIDC) and a pod's service account.
Credentials expire, and authorities are replaced. So everything is loaded again in three cases: a file changes; a
certificate or a plugin's answer is about to expire; the API server refuses the credentials, or cannot be verified.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import structlog
from cryptography import x509
from kubernetes.aio import config as client_config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import incluster_config, kube_config
from kubernetes.aio.config.kube_config import KubeConfigLoader

from extender.kube.errors import Unavailable

_log = structlog.get_logger(__name__)

_RENEW_BEFORE = 60.0
_RENEW_AT_MOST_EVERY = 10.0
_LOAD_WITHIN = 30.0


class Sources(NamedTuple):
    """The files that a loader read, and their expiry in seconds since the epoch, if known."""

    files: tuple[str, ...] = ()
    until: float | None = None


Loader = Callable[[Configuration], Awaitable[Sources]]
"""Fills the configuration. It is called again when a file changes or the expiry is near."""


class Papers(NamedTuple):
    """What a request shows: Authorization header and TLS context (certificate, authorities).

    The header is None without a token; the context is None for http. Other content always gives another context.
    """

    authorization: str | None
    trust: ssl.SSLContext | None


class BadConfiguration(Exception):
    """There is no usable configuration of a cluster. `str()` tells its author what is missing."""


def from_kubeconfig(path: Path | None = None, context: str | None = None) -> Loader:
    """A loader for that file; None: $KUBECONFIG or ~/.kube/config. It keeps its first context."""

    async def load(configuration: Configuration) -> Sources:
        nonlocal context
        file = _existing(path)
        _forget_lost_copies()
        loader: KubeConfigLoader = await client_config.load_kube_config(  # type: ignore[no-untyped-call]
            file, context=context, client_configuration=configuration, persist_config=False
        )
        context = str(loader.current_context["name"])
        # The client logs a plugin's failure and continues without credentials.
        if "exec" in (loader._user or ()) and not configuration.api_key and not configuration.cert_file:
            raise BadConfiguration("the credentials plugin (exec) of the kubeconfig returned none; see the log")
        expiry = getattr(loader, "exec_plugin_expiry", None)
        return Sources(_read(file, loader), None if expiry is None else float(expiry.timestamp()))

    return load


def _read(kubeconfig: str, loader: KubeConfigLoader) -> tuple[str, ...]:
    """The files of a kubeconfig, and the files that it names."""
    files = [str(Path(part).expanduser()) for part in kubeconfig.split(os.pathsep) if part]
    for node in (loader._cluster, loader._user):
        for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
            if node is not None and (named := node.safe_get(key)):
                base: str = loader._get_base_path(node.path)  # type: ignore[no-untyped-call]
                files.append(os.path.join(base, named))
    return tuple(files)


def _forget_lost_copies() -> None:
    """Makes the client write its temporary copies of certificates again if they were deleted."""
    # It writes each once only, so without this no load would succeed after a clean-up of temporary files.
    copies = kube_config._temp_files
    # Another thread may load at the same time.
    for content in [content for content, copy in list(copies.items()) if not os.path.exists(copy)]:
        copies.pop(content, None)


def _existing(path: Path | None) -> str:
    file = str(path) if path is not None else os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    # $KUBECONFIG may name several files, which are merged; missing ones are skipped.
    if not any(Path(part).expanduser().exists() for part in file.split(os.pathsep) if part):
        raise BadConfiguration(f"there is no kubeconfig at {file}")
    return file


def from_service_account() -> Loader:
    """A loader for the service account of the pod that this process runs in."""

    async def load(configuration: Configuration) -> Sources:
        client_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        return Sources((incluster_config.SERVICE_TOKEN_FILENAME, incluster_config.SERVICE_CERT_FILENAME))

    return load


def default_loader(kubeconfig: Path | None = None, context: str | None = None) -> Loader:
    """The named kubeconfig, else (in a pod) the service account, else the user's kubeconfig."""
    if kubeconfig is None and not os.environ.get("KUBECONFIG") and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return from_service_account()
    return from_kubeconfig(kubeconfig, context)


class Credentials:
    """One cluster's address, and its current papers; create it with `load`."""

    def __init__(self, loader: Loader, now: Callable[[], float] = time.time) -> None:
        self._loader = loader
        self._now = now
        self._lock = asyncio.Lock()
        self._configuration: Any = None
        self._files: tuple[str, ...] = ()
        self._seen: list[_Stamp | None] = []
        self._renew_at: float | None = None
        self.ends_at: float | None = None
        """Expiry in seconds since the epoch, if a certificate or a plugin gives it."""
        self.vain = 0
        """How many loads failed, or brought credentials that had been refused before."""
        self._loaded_at = 0.0
        self._trust: ssl.SSLContext | None = None
        self._content = b""

    @classmethod
    async def load(cls, loader: Loader, now: Callable[[], float] = time.time) -> Credentials:
        """Loads the credentials. Raises BadConfiguration."""
        credentials = cls(loader, now)
        await credentials._load()
        return credentials

    @property
    def address(self) -> str:
        """`https://host:port`, perhaps with a path; no slash at the end. It never changes."""
        return _address(self._configuration)

    @property
    def server_name(self) -> str | None:
        """The name for the server's certificate, if it is not the one in the address."""
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

    async def papers(self) -> Papers:
        """The papers to show now. Raises Unavailable if there is no token."""
        if self._outdated():
            async with self._lock:
                if self._outdated():
                    await self._load_again()
        return await self._papers()

    async def renew(self, rejected: Papers) -> bool:
        """Whether there are newer papers than `rejected`, which were refused or did not suffice.

        Loads everything again, unless that was done moments ago. Concurrent calls share one load.
        """
        async with self._lock:
            if await self._papers() != rejected:
                return True
            # The absolute difference, because the clock may have been set back since, by hours.
            if abs(self._now() - self._loaded_at) < _RENEW_AT_MOST_EVERY:
                return False
            if await self._load_again() and await self._papers() == rejected:
                self.vain += 1
                ends = None if self.ends_at is None else datetime.fromtimestamp(self.ends_at, UTC).isoformat()
                _log.warning("the API server rejects the credentials, and there are no newer ones", end=ends)
            return await self._papers() != rejected

    def _outdated(self) -> bool:
        if self._renew_at is not None and not self._loaded_at <= self._now() < self._renew_at:
            return True
        return _stamps(self._files) != self._seen

    async def _load_again(self) -> bool:
        """Whether the load succeeded; if not, everything stays, and a new attempt follows soon."""
        seen = _stamps(self._files)
        try:
            await self._load()
        except BadConfiguration as error:
            self.vain += 1
            # Files are replaced one after another: the next change may bring the missing part.
            self._seen = seen
            self._loaded_at = self._now()
            self._renew_at = self._loaded_at + _RENEW_AT_MOST_EVERY
            _log.warning("credentials could not be renewed; Escher keeps using the old ones", why=str(error))
            return False
        return True

    async def _load(self) -> None:
        configuration = Configuration()
        try:
            async with asyncio.timeout(_LOAD_WITHIN):
                sources = await self._loader(configuration)
            seen = _stamps(sources.files)
            trust, content, ends_at = self._trusting(configuration)
        except BadConfiguration:
            raise
        except TimeoutError as error:
            raise BadConfiguration(f"the cluster's configuration did not load within {_LOAD_WITHIN:g} s") from error
        except Exception as error:  # the client's loaders let everything through: YAML, OSError, TypeError, ssl ...
            raise BadConfiguration(f"the cluster's configuration cannot be used: {error}") from error
        if self._configuration is not None and _address(configuration) != self.address:
            raise BadConfiguration(f"they are for {_address(configuration)} now: restart Escher to connect there")
        self._configuration = configuration
        self._files, self._seen = sources.files, seen
        self._trust, self._content = trust, content
        self._loaded_at = self._now()
        self.ends_at = min((each for each in (sources.until, ends_at) if each is not None), default=None)
        self._renew_at = None
        if self.ends_at is not None:
            self._renew_at = max(self.ends_at - _RENEW_BEFORE, self._loaded_at + _RENEW_AT_MOST_EVERY)

    def _trusting(self, configuration: Any) -> tuple[ssl.SSLContext | None, bytes, float | None]:
        """The TLS context, a digest of its content, and its certificate's expiry (epoch seconds).

        Connections belong to a context: a new one means new connections, so the same content keeps its context.
        """
        if not _address(configuration).startswith("https"):
            return None, b"", None
        certificate = _bytes(configuration.cert_file)
        parts = (
            certificate, _bytes(configuration.key_file), _bytes(configuration.ssl_ca_cert),
            str(configuration.ca_cert_data).encode(), str(configuration.verify_ssl).encode(),
        )  # fmt: skip
        content = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()
        ends_at = None
        if certificate:
            ends_at = x509.load_pem_x509_certificates(certificate)[0].not_valid_after_utc.timestamp()
        if self._trust is not None and content == self._content:
            return self._trust, content, ends_at
        return _context(configuration), content, ends_at

    async def _papers(self) -> Papers:
        try:
            # This calls the client's hook, which reads a service account's token again every minute.
            token = await self._configuration.get_api_key_with_prefix("BearerToken")
        except (OSError, client_config.ConfigException) as error:
            raise Unavailable(f"the token of the service account cannot be read: {error}") from error
        return Papers(None if token is None else str(token).strip(), self._trust)


def _context(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    # Python 3.13 requires key identifiers in every certificate. Many clusters' own authorities omit them, and Go, the
    # language of most clients, does not require them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    return context


def _address(configuration: Any) -> str:
    return str(configuration.host).rstrip("/")


def _bytes(file: str | None) -> bytes:
    return Path(file).read_bytes() if file else b""


_Stamp = tuple[int, int, int, int]


def _stamps(files: Iterable[str]) -> list[_Stamp | None]:
    """Changes if a file is written or replaced. Follows links, which replace a pod's volumes."""
    return [_stamp(file) for file in files]


def _stamp(file: str) -> _Stamp | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    # The change time, not the modification time, because a copy keeps the latter.
    return found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size
