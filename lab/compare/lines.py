"""Lines of policy code, counted: physical lines without blank lines, comments and docstrings."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable
from pathlib import Path

import extender
from lab.compare.vocabulary import APPSPACE, EXTENDER, LIBSPACE

PACKAGE = Path(extender.__file__).parent
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source: str) -> int:
    """Lines with code: all lines of each token. Any string that is a statement is a docstring."""
    texts = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Expr) and _is_text(node.value)]
    docstrings = {(text.lineno, text.col_offset) for text in texts}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE and token.start not in docstrings:
            lines.update(range(token.start[0], token.end[0] + 1))
    written = source.splitlines()
    return sum(bool(written[line - 1].strip()) for line in lines)


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def of_approaches() -> dict[str, int]:
    """Code lines for gangs only, by approach. Code shared by all policies does not count."""
    ghosts = _of(PACKAGE.glob("esl/gangs/*.py"))
    return {
        APPSPACE: ghosts,
        LIBSPACE: ghosts,
        EXTENDER: _of([PACKAGE / "filters" / "gang.py", *PACKAGE.glob("core/gangs/**/*.py")]),
    }


def _of(files: Iterable[Path]) -> int:
    return sum(code_lines(file.read_text()) for file in files)
