"""TLS: loads the service's certificate and the trusted authorities, and reloads changed files.

Certificates are renewed while the service runs. The files are read every few seconds and compared as bytes, because a
mounted Secret is a link that is replaced. New content applies from the next handshake on: each handshake gets the
newest context, in which a removed authority is unknown. Open connections continue. Unusable files change nothing, and
are logged once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

import structlog
from cryptography import x509

from extender.settings.settings import Settings

_log = structlog.get_logger(__name__)

LOOK_EVERY = 3.0
"""Seconds between two checks of the files."""


class CannotListen(Exception):
    """The address or the certificates cannot be used; `str()` names setting, value and fault."""


class ServedCertificates:
    """A certificate chain, its key, and the authorities of clients, all read from files.

    `client_ca` None: clients are not asked for a certificate. Raises CannotListen if the files are unusable at the
    start."""

    def __init__(
        self,
        certificate: Path,
        key: Path,
        client_ca: Path | None,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._paths = certificate, key, client_ca
        self._sleep = sleep
        self.unusable = 0
        """How often the files changed to content that could not be used."""
        check_tls(*self._paths)
        self._seen = self._contents()
        self._in_doubt: object = None
        self.ends_at = 0.0
        """When the first certificate of the chain expires, in seconds since the epoch."""
        self.context = self._newest = self._loaded()
        """For the listening socket: this object never changes."""
        self.context.sni_callback = self._hand_newest

    async def run(self) -> None:
        """Checks the files repeatedly until it is cancelled."""
        while True:
            await self._sleep(LOOK_EVERY)
            self.look()

    def look(self) -> None:
        """Loads the files if they changed. Usable content applies to all later handshakes."""
        contents = self._contents()
        if contents == self._seen:
            self._in_doubt = None
            return
        try:
            check_tls(*self._paths)
            newest = self._loaded()
        except Exception as error:
            # A certificate can be wrong in many ways, which raise errors of different types. None may end the service.
            # Files are replaced one after the other, so only content that stays is logged.
            if contents == self._in_doubt:
                self._seen, self._in_doubt = contents, None
                self.unusable += 1
                _log.error("new certificates are unusable: the current ones stay in use", why=str(error))
            else:
                self._in_doubt = contents
            return
        if self._contents() != contents:
            # The files changed while they were read.
            return
        self._seen, self._in_doubt, self._newest = contents, None, newest
        _log.info("new certificates are in use", ends_at=self.ends_at)

    def _contents(self) -> tuple[bytes | None, ...]:
        return tuple(None if path is None else _read(path) for path in self._paths)

    def _loaded(self) -> ssl.SSLContext:
        certificate, key, client_ca = self._paths
        chain = x509.load_pem_x509_certificates(certificate.read_bytes())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # No session is resumed: at each connection the client shows its certificate to the authorities of that moment.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        context.load_cert_chain(certificate, key, password=_no_pass_phrase(key))
        if client_ca is not None:
            # A kubelet's probes show no certificate. A certificate that is shown must be valid.
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(cafile=client_ca)
        self.ends_at = min(each.not_valid_after_utc for each in chain).timestamp()
        return context

    def _hand_newest(self, connection: Any, _: str | None, __: ssl.SSLContext) -> None:
        # OpenSSL calls this at every handshake, whether or not the client names a server.
        connection.context = self._newest


def served_certificates(settings: Settings) -> ServedCertificates | None:
    """Returns the certificates that the settings name, or None. Raises CannotListen."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return ServedCertificates(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)


def check_tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> None:
    """Checks that the files are readable, and the key is the certificate's. Raises CannotListen."""
    for name, path in (("tls_certificate", certificate), ("tls_client_ca", client_ca)):
        if path is not None:
            _check_readable(name, path)
            try:
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cafile=path)
            except ssl.SSLError as error:
                raise CannotListen(f"{name} = {path}: it has no certificate (PEM)") from error
    if certificate is None or key is None:
        return
    _check_readable("tls_key", key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_pass_phrase(key))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"it is not the key of tls_certificate = {certificate}"
        else:
            why = f"it has no usable private key (PEM){f': {error.reason}' if error.reason else ''}"
        raise CannotListen(f"tls_key = {key}: {why}") from error


def _no_pass_phrase(key: Path) -> Callable[[], NoReturn]:
    def refuse() -> NoReturn:
        # Without this OpenSSL asks for the pass phrase at the terminal.
        raise CannotListen(f"tls_key = {key}: it is encrypted; give one without a passphrase")

    return refuse


def _check_readable(name: str, path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise CannotListen(f"{name} = {path}: {error.strerror or error}") from error


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
