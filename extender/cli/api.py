"""The management API as the commands for people call it: options, one request, pages, errors in words.

What speaks HTTP is imported when a call is made: help should not wait for it. Exit codes: 1 where the service refuses
or cannot be reached, 2 for wrong use. Results go to standard output.
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

from extender.cli.terminal import Terminal

if TYPE_CHECKING:
    import ssl

    import httpx

DEFAULT_URL = "http://127.0.0.1:8080"
_TIMEOUT = 60.0
_SHOW = (
    "Say who calls with --token-file, ESCHER_TOKEN_FILE or ESCHER_TOKEN; or, where the service knows callers by "
    "certificates, with --tls-certificate (or ESCHER_TLS_CERTIFICATE) and --tls-key (or ESCHER_TLS_KEY)"
)

out = Terminal(highlight=False, soft_wrap=True)
if not out.is_terminal:
    # A file or pipe has no width; rows stay whole.
    out = Terminal(highlight=False, soft_wrap=True, width=400)
beside = Terminal(stderr=True, highlight=False, soft_wrap=True)

Url = Annotated[str, typer.Option("--url", envvar="ESCHER_URL", help="Address of the Escher service.")]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca", envvar="ESCHER_TLS_CA", help="Trust services whose certificate one of these signed (PEM)."
    ),
]
TlsCertificate = Annotated[
    Path | None,
    typer.Option(
        "--tls-certificate", envvar="ESCHER_TLS_CERTIFICATE", help="Certificate to show to the service (PEM)."
    ),
]
TlsKey = Annotated[
    Path | None, typer.Option("--tls-key", envvar="ESCHER_TLS_KEY", help="Private key of the certificate (PEM).")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="ESCHER_TOKEN_FILE",
        help="File with the bearer token that says who calls; or give the token in ESCHER_TOKEN.",
    ),
]
Namespace = Annotated[str, typer.Option("--namespace", "-n", envvar="ESCHER_NAMESPACE", help="Kubernetes namespace.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]


def connect(url: str, trust: ssl.SSLContext | bool = True) -> httpx.Client:
    """A client of the service at that address. `trust`: for https; True is whom this machine trusts."""
    import httpx

    return httpx.Client(base_url=url, timeout=_TIMEOUT, verify=trust)


class Api:
    """One command's calls. `opened`: makes the connection, when the first call needs it. `at`: the moment of which the
    answers are; None: they are of now."""

    def __init__(self, opened: Callable[[], httpx.Client], at: datetime | None = None) -> None:
        self._opened = opened
        self.at = at

    @cached_property
    def _client(self) -> httpx.Client:
        return self._opened()

    @property
    def address(self) -> str:
        """Where the service is."""
        return str(self._client.base_url)

    def get(self, path: str) -> httpx.Response:
        """What is answered there, of whatever status. Raises httpx.HTTPError."""
        return self._client.get(path)

    def call(
        self,
        method: str,
        *path: str,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Any:
        """The answer's JSON; None where there is none. Path parts are names, quoted here. Does not return on errors."""
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
            fail(f"what answers at {self._client.base_url} is no Escher service: its answer is not JSON")

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Does not return where the service is not there, or does not answer."""
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
        """What a GET answers, part by part. Does not return on errors."""
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
    """A connection to the service (httpx.Client), with the options of every command that needs one."""
    _check_address(url)
    given = {"--tls-ca": tls_ca, "--tls-certificate": tls_certificate, "--tls-key": tls_key}
    named = {option: path for option, path in given.items() if path is not None}
    if named and not url.startswith("https://"):
        option, path = next(iter(named.items()))
        fail(
            f"{option} (or {_variable(option)}) is {path}, but {url} is not https; write https:// or leave it out",
            code=2,
        )
    authorization = _authorization(url, token_file)
    client = connect(url, _trust(tls_ca, tls_certificate, tls_key) if named else True)
    if authorization is not None:
        client.headers["Authorization"] = authorization
    return client


_OPTIONS = inspect.signature(_open, eval_str=True).parameters


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of `_open` in place of its keyword `service: Api`, which works while it runs.

    Nothing is looked at or opened before the service is asked: wrong use that the command itself finds is told first.
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

    # What typer reads: types, and not the names that annotations are here.
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(run)["__signature__"] = signature.replace(parameters=parameters)
    return run


def _authorization(url: str, token_file: Path | None) -> str | None:
    from escher_k8s.errors import EscherError
    from escher_k8s.tokens import token_for

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
        fail(f"--url (or ESCHER_URL) is {url!r}, no address of a service; write one such as {DEFAULT_URL}", code=2)


def _could_be_a_service(parts: SplitResult) -> bool:
    """Raises ValueError for a port that is none."""
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
        with _told("--tls-ca", ca, "no certificate (PEM) is in it"):
            ca.read_bytes()
            # None but these: whoever names an authority does not mean the machine's hundred as well.
            context = ssl.create_default_context(cafile=ca)
            # Python 3.13 wants key identifiers in every certificate; many clusters' own authorities leave them out.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if certificate is not None:
        with _told("--tls-certificate", certificate, "no certificate (PEM) is in it"):
            certificate.read_bytes()
            ssl.create_default_context().load_verify_locations(cafile=certificate)
        # A file may hold both.
        option, keys = ("--tls-certificate", certificate) if key is None else ("--tls-key", key)
        with _told(option, keys, f"no private key (PEM) of the certificate {certificate} is in it"):
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
        return "Name whom to trust with --tls-ca or ESCHER_TLS_CA"
    if address.scheme == "https" and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        # With TLS 1.3 a server that wants a certificate hangs up when the request has been sent.
        shown = "--tls-certificate (or ESCHER_TLS_CERTIFICATE) and --tls-key (or ESCHER_TLS_KEY)"
        return f"If it requires a certificate, show one: {shown}"
    return "Give its address with --url or ESCHER_URL, or start it: escher serve"


def own_node() -> dict[str, str | None]:
    """The header that tells the node this runs on, if the environment does (downward API)."""
    return {"Escher-Node": os.environ.get("ESCHER_NODE") or None}


def print_json(value: object) -> None:
    out.print(Text(json.dumps(value, indent=2)))


def fail(message: str, *, code: int = 1) -> NoReturn:
    """The command ends with this text, in one line, and exit code. The text may say what others wrote."""
    beside.print(f"escher: {message}")
    raise typer.Exit(code)


def _refusal(answer: httpx.Response) -> str:
    try:
        problem = answer.json()
        detail, field = str(problem["detail"]), str(problem.get("field") or "")
    except (ValueError, KeyError, TypeError):
        return f"the service answers {answer.status_code} {answer.reason_phrase}"
    told = detail if field in detail else f"{field}: {detail}"
    return f"{told}. {_SHOW}" if answer.status_code == 401 else told
