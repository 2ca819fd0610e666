"""The management API for commands: options, requests, pages, and errors in words.

Modules for HTTP are imported when a call is made, so that help need not wait. Exit codes: 1 if the service refuses or
cannot be reached, 2 for wrong use. Results go to standard output.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.parse import SplitResult, quote, urlsplit

import typer
from rich.text import Text

from extender.cli.common.terminal import Terminal

if TYPE_CHECKING:
    import ssl

    import httpx

DEFAULT_URL = "http://127.0.0.1:8080"
_TIMEOUT = 60.0
_SHOW = (
    "Authenticate with --token-file, ESCHER_TOKEN_FILE or ESCHER_TOKEN; or, if the service authenticates by "
    "certificate, with --tls-certificate (or ESCHER_TLS_CERTIFICATE) and --tls-key (or ESCHER_TLS_KEY)"
)

out = Terminal(highlight=False, soft_wrap=True)
if not out.is_terminal:
    # A file or pipe has no width; rows must not be wrapped.
    out = Terminal(highlight=False, soft_wrap=True, width=400)
beside = Terminal(stderr=True, highlight=False, soft_wrap=True)

Url = Annotated[str, typer.Option("--url", envvar="ESCHER_URL", help="Address of the Escher service.")]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca", envvar="ESCHER_TLS_CA", help="Trust services with a certificate from one of these CAs (PEM)."
    ),
]
TlsCertificate = Annotated[
    Path | None,
    typer.Option(
        "--tls-certificate", envvar="ESCHER_TLS_CERTIFICATE", help="Client certificate for the service (PEM)."
    ),
]
TlsKey = Annotated[
    Path | None, typer.Option("--tls-key", envvar="ESCHER_TLS_KEY", help="Private key of the client certificate (PEM).")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="ESCHER_TOKEN_FILE",
        help="File with the bearer token; or give the token in ESCHER_TOKEN.",
    ),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", envvar="ESCHER_NAMESPACE", help="Kubernetes namespace.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]


def connect(url: str, trust: ssl.SSLContext | bool = True) -> httpx.Client:
    """A client of the service at `url`. `trust`: for https; True: the machine's authorities."""
    import httpx

    return httpx.Client(base_url=url, timeout=_TIMEOUT, verify=trust)


class Api:
    """One command's calls; `opened` connects at the first. `at`: the answers' time, None: now."""

    def __init__(self, opened: Callable[[], httpx.Client], at: datetime | None = None) -> None:
        self._opened = opened
        self.at = at

    @cached_property
    def _client(self) -> httpx.Client:
        return self._opened()

    @property
    def address(self) -> str:
        """The service's URL."""
        return str(self._client.base_url)

    def get(self, path: str) -> httpx.Response:
        """The answer of any status. Raises httpx.HTTPError."""
        return self._client.get(path)

    def call(
        self,
        method: str,
        *path: str,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Any:
        """The answer's JSON, None if empty. Quotes the path parts. Exits on errors."""
        address = "/v1/" + "/".join(quote(part, safe="") for part in path)
        given = {key: value for key, value in (params or {}).items() if value is not None}
        told = {key: value for key, value in (headers or {}).items() if value is not None}
        with self._reached():
            answer = self._client.request(method, address, json=body, params=given, headers=told)
        if answer.is_error:
            fail(_refusal(answer))
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError:
            fail(f"the server at {self._client.base_url} is not an Escher service: its answer is not JSON")

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Exits if the service cannot be reached or does not answer in time."""
        import httpx

        try:
            yield
        except httpx.TimeoutException:
            fail(f"the service at {self._client.base_url} did not answer within {_TIMEOUT:g} s")
        except httpx.HTTPError as error:
            where, why = self._client.base_url, str(error).rstrip(".")
            fail(f"the service at {where} cannot be reached: {why}. {_advice(error, where)}")

    @contextmanager
    def streamed(self, *path: str) -> Iterator[Iterator[bytes]]:
        """The body of a GET, part by part. Exits on errors."""
        address = "/v1/" + "/".join(quote(part, safe="") for part in path)
        with self._reached(), self._client.stream("GET", address) as answer:
            if answer.is_error:
                answer.read()
                fail(_refusal(answer))
            yield answer.iter_bytes()

    def every(self, *path: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """All items of a list, page after page."""
        items: list[dict[str, Any]] = []
        following: str | None = None
        while True:
            page = self.call("GET", *path, params={**(params or {}), "continue": following})
            items += page["items"]
            following = page["continue"]
            if following is None:
                return items


def _open(
    url: Url = DEFAULT_URL,
    tls_ca: TlsCa = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    token_file: TokenFile = None,
) -> Any:
    """A connection to the service (httpx.Client), from the options that all such commands have."""
    _check_address(url)
    given = {"--tls-ca": tls_ca, "--tls-certificate": tls_certificate, "--tls-key": tls_key}
    named = {option: path for option, path in given.items() if path is not None}
    if named and not url.startswith("https://"):
        option, path = next(iter(named.items()))
        fail(
            f"{option} (or {_variable(option)}) is {path}, but {url} is not https; write https:// or omit the option",
            code=2,
        )
    authorization = _authorization(url, token_file)
    client = connect(url, _trust(tls_ca, tls_certificate, tls_key) if named else True)
    if authorization is not None:
        client.headers["Authorization"] = authorization
    return client


_OPTIONS = inspect.signature(_open, eval_str=True).parameters


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of `_open` in place of its keyword `service: Api`.

    `_open` checks the options and connects at the first call, so that the command reports its own wrong use first.
    """
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name == "service":
            parameters += (each.replace(kind=parameter.kind) for each in _OPTIONS.values())
        else:
            parameters.append(parameter)

    @wraps(command)
    def run(**given: Any) -> None:
        options = {name: given.pop(name) for name in _OPTIONS}
        with ExitStack() as stack:
            command(service=Api(lambda: stack.enter_context(_open(**options))), **given)

    # typer needs types, but the annotations in this module are strings.
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(run)["__signature__"] = signature.replace(parameters=parameters)
    return run


def _authorization(url: str, token_file: Path | None) -> str | None:
    from escher_k8s.errors import EscherError
    from escher_k8s.management.tokens import token_for

    try:
        return token_for(url, None, token_file, os.environ).header()
    except EscherError as error:
        fail(f"--token-file (or ESCHER_TOKEN_FILE, or ESCHER_TOKEN): {error}", code=2)


def _check_address(url: str) -> None:
    import httpx

    try:
        httpx.URL(url)
        usable = _could_be_a_service(urlsplit(url)) and not any(each.isspace() for each in url)
    except (ValueError, httpx.InvalidURL):
        usable = False
    if not usable:
        fail(f"--url (or ESCHER_URL) is {url!r}, not a service URL; write one such as {DEFAULT_URL}", code=2)


def _could_be_a_service(parts: SplitResult) -> bool:
    """Whether the URL may be a service's. Raises ValueError for an invalid port."""
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        return False
    return not (parts.query or parts.fragment)


def _trust(ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    import ssl

    import httpx

    if key is not None and certificate is None:
        fail(f"--tls-key (or ESCHER_TLS_KEY) is {key}, but there is no --tls-certificate: give both or neither", code=2)
    if ca is None:
        context = httpx.create_ssl_context()
    else:
        with _told("--tls-ca", ca, "it has no certificate (PEM)"):
            ca.read_bytes()
            # Only these authorities: a user who names one does not want the machine's hundred as well.
            context = ssl.create_default_context(cafile=ca)
            # Python 3.13 requires key identifiers in every certificate; authorities of many clusters omit them.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if certificate is not None:
        with _told("--tls-certificate", certificate, "it has no certificate (PEM)"):
            certificate.read_bytes()
            ssl.create_default_context().load_verify_locations(cafile=certificate)
        # One file may have both the certificate and the key.
        option, keys = ("--tls-certificate", certificate) if key is None else ("--tls-key", key)
        with _told(option, keys, f"it has no private key (PEM) of the certificate {certificate}"):
            keys.read_bytes()
            context.load_cert_chain(certificate, key)
    return context


@contextmanager
def _told(option: str, path: Path, what_else: str) -> Iterator[None]:
    import ssl

    try:
        yield
    except ssl.SSLError:
        fail(f"{option} (or {_variable(option)}) is {path}: {what_else}", code=2)
    except OSError as error:
        fail(f"{option} (or {_variable(option)}) is {path}: {error.strerror or error}", code=2)


def _variable(option: str) -> str:
    return "ESCHER" + option.removeprefix("-").replace("-", "_").upper()


def _advice(error: httpx.HTTPError, address: httpx.URL) -> str:
    import httpx

    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "Name the CA to trust with --tls-ca or ESCHER_TLS_CA"
    if address.scheme == "https" and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        # With TLS 1.3 a server that requires a certificate closes the connection after the request has been sent.
        shown = "--tls-certificate (or ESCHER_TLS_CERTIFICATE) and --tls-key (or ESCHER_TLS_KEY)"
        return f"If it requires a client certificate, give one: {shown}"
    return "Give its address with --url or ESCHER_URL, or start it: escher serve"


def own_node() -> dict[str, str | None]:
    """The header with the name of this process's node, if the environment has it (downward API)."""
    return {"Escher-Node": os.environ.get("ESCHER_NODE") or None}


def print_json(value: object) -> None:
    out.print(Text(json.dumps(value, indent=2)))


def fail(message: str, *, code: int = 1) -> NoReturn:
    """Ends the command with this text, escaped and in one line, and with the exit code."""
    beside.print(f"escher: {message}")
    raise typer.Exit(code)


def _refusal(answer: httpx.Response) -> str:
    try:
        problem = answer.json()
        detail, field = str(problem["detail"]), str(problem.get("field") or "")
    except (ValueError, KeyError, TypeError):
        return f"the service answered {answer.status_code} {answer.reason_phrase}"
    told = detail if field in detail else f"{field}: {detail}"
    return f"{told}. {_SHOW}" if answer.status_code == 401 else told
