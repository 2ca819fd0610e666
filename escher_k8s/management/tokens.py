"""Tokens: identify the caller. None is sent unless given, or over https the pod's own.

In this order: what the client was given; $ESCHER_TOKEN; the file in $ESCHER_TOKEN_FILE; in a pod, and over https alone,
the token of its service account. A file is read for every request, because tokens in files are renewed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from escher_k8s.errors import Contradiction, EscherError

TOKEN_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """A bearer token, or its file, or neither. `needed`: a missing file is an error."""

    text: str | None = None
    file: Path | None = None
    needed: bool = True

    def header(self) -> str | None:
        """The Authorization header now; None: it is left out. Raises EscherError."""
        text = self.text if self.file is None else self._read(self.file)
        if text is None:
            return None
        if not text.isascii() or not text.isprintable() or not text or " " in text:
            where = "the token" if self.file is None else f"the content of {self.file}"
            raise EscherError(f"{where} is not a bearer token: it is empty, or has invalid characters")
        return f"Bearer {text}"

    def _read(self, file: Path) -> str | None:
        try:
            return file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            if not self.needed:
                return None
            raise EscherError(f"the token cannot be read from {file}: {error}") from error


def token_for(
    url: str,
    token: str | None,
    token_file: Path | str | None,
    environment: Mapping[str, str],
    in_pod: Path = TOKEN_FILE,
) -> Token:
    """The caller's token for the service at that address. Raises Contradiction if two are given."""
    if token is not None and token_file is not None:
        raise Contradiction("token_file", "token is given as well: give one of the two")
    if token is not None:
        return Token(token.strip())
    if token_file is not None:
        return Token(file=Path(token_file))
    if said := environment.get("ESCHER_TOKEN"):
        return Token(said.strip())
    if named := environment.get("ESCHER_TOKEN_FILE"):
        return Token(file=Path(named))
    if url.startswith("https://") and environment.get("KUBERNETES_SERVICE_HOST"):
        return Token(file=in_pod, needed=False)
    return Token()
