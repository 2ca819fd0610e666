"""Certificates and keys in files, good ones and bad ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass
class Certificates:
    """In files: an authority, and a certificate of its for 127.0.0.1 with its key."""

    folder: Path
    authority: trustme.CA = field(default_factory=trustme.CA)

    def __post_init__(self) -> None:
        issued = self.authority.issue_cert("127.0.0.1")
        self.ca = self._write("ca.pem", self.authority.cert_pem.bytes())
        self.certificate = self._write("tls.crt", b"".join(each.bytes() for each in issued.cert_chain_pems))
        self.key = self._write("tls.key", issued.private_key_pem.bytes())
        self.other_key = self._write("other.key", self.authority.issue_cert("other").private_key_pem.bytes())
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
        self.locked_key = self._write("locked.key", locked)
        self.garbage = self._write("garbage", b"no certificate\n")
        self.absent = self.folder / "absent"

    def _write(self, name: str, content: bytes) -> Path:
        file = self.folder / name
        file.write_bytes(content)
        return file
