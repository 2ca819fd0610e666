"""docs/policies/ is true: every block of every page is carried out, and the runner sees where one is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.pages import LANGUAGES, Block, Played, Untrue, blocks_of, cases, pages, played, request_of


@pytest.fixture(scope="module")
def on_page() -> Iterator[dict[str, Played]]:
    """Each page on its cluster, kept from one of its blocks to the next."""
    there: dict[str, Played] = {}
    yield there
    for page in there.values():
        page.close()


@pytest.mark.parametrize("block", cases())
def test_what_the_page_shows_is_so(block: Block, on_page: dict[str, Played]) -> None:
    if block.page not in on_page:
        for other in on_page.values():
            other.close()
        on_page.clear()
        on_page[block.page] = Played(pages()[block.page])
    on_page[block.page].do(block)


@pytest.mark.parametrize("page", pages())
def test_every_page_shows_something_and_all_of_it_is_carried_out(page: str) -> None:
    languages = {block.language for block in pages()[page]}
    assert languages
    assert languages <= set(LANGUAGES)


PUT = """
```sh
curl -X PUT http://e.test/v1/namespaces/team-a/policies/apart \\
  -H 'Content-Type: application/json' -d '{"type": "anti-affinity"}'
curl -X PUT http://e.test/v1/namespaces/team-a/policies/apart --json '{"type": "new"}'  # 422
```
"""


def test_what_is_typed_is_carried_out_in_order_and_answers_are_compared() -> None:
    first, true, false = blocks_of(
        "a.md",
        f"""{PUT}
```pycon
>>> from escher_k8s import Escher
>>> escher = Escher("http://e.test", namespace="team-a")
>>> escher.get_policy("apart").type
'anti-affinity'
```

```pycon
>>> escher.get_policy("apart").type
'balance'
```
""",
    )
    with played([first, true, false]) as page:
        page.do(true)
        page.do(first)
        with pytest.raises(Untrue, match="anti-affinity"):
            page.do(false)
        with pytest.raises(Untrue, match="went wrong"):
            page.do(true)


@pytest.mark.parametrize(
    ("language", "text", "why"),
    [
        ("", "escher", "nobody carries out blocks in ''"),
        ("rust", "fn main() {}", "nobody carries out blocks in 'rust'"),
        ("sh", "rm -r /", "nobody carries out 'rm"),
        ("sh", "\n", "nothing is typed"),
        ("sh", "curl http://e.test/v1/nowhere", "is answered by 404"),
        ("sh", "curl http://e.test/v1/policy-types  # 404", "is answered by 200"),
        ("sh", "curl --silent-mode http://e.test/", "nobody carries out curl's"),
        ("sh", "escher policy get none -n team-a", "ends with"),
        ("pycon", ">>> escher = 1", "no answer is shown"),
        ("python", "async def main(): pass", "asserts nothing"),
        ("python", "def f():\n    assert 1", "no `async def main`"),
        (
            "yaml",
            "apiVersion: escher.dev/v1alpha1\nkind: EscherPolicy\nmetadata: {name: a}\n"
            "spec: {type: soft, parameters: {preferences: [a]}}",
            "a is not in force",
        ),
    ],
)
def test_a_block_that_is_not_so_fails(language: str, text: str, why: str) -> None:
    [block] = blocks_of("a.md", f"```{language}\n{text}\n```\n")
    with played([block]) as page, pytest.raises(Untrue, match=why):
        page.do(block)


def test_a_block_says_where_it_is() -> None:
    assert [str(each) for each in blocks_of("a.md", "# A\n\n```sh\ncurl x\n```\n```\n```\n")] == [
        "a.md:4:sh",
        "a.md:7:unnamed",
    ]
    with pytest.raises(Untrue, match="never ends"):
        blocks_of("a.md", "```sh\n")


def test_curl_sends_what_it_is_told() -> None:
    sent = request_of(["-X", "PATCH", "http://e.test/a", "--json", "{}", "-H", 'If-Match: "1"'])
    assert (sent.method, sent.url.path, sent.content) == ("PATCH", "/a", b"{}")
    assert (sent.headers["content-type"], sent.headers["if-match"]) == ("application/json", '"1"')
    assert request_of(["http://e.test/a"]).method == "GET"
    assert request_of(["-d", "{}", "http://e.test/a"]).method == "POST"
