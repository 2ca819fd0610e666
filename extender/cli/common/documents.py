"""Documents: the content of a YAML file; JSON is a subset of YAML."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from extender.cli.common.api import fail


def read_documents(option: str, filename: str) -> list[Any]:
    """The documents of the file `option` names; `-` is standard input. Exits on errors."""
    import yaml

    try:
        text = sys.stdin.read() if filename == "-" else Path(filename).read_text()
        documents = list(yaml.safe_load_all(text))
    except OSError as error:
        fail(f"{option} is {filename}: {error.strerror or error}", code=2)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        fail(f"{option} is {filename}: it is not YAML: {' '.join(str(error).split())}", code=2)
    try:
        # JSON writes a character beyond U+FFFF as two halves, which YAML reads as two characters.
        found: list[Any] = json.loads(json.dumps(documents, default=str))
        json.dumps(found, ensure_ascii=False).encode()
    except (UnicodeEncodeError, ValueError) as error:
        fail(f"{option} is {filename}: it has text that is not Unicode: {error}", code=2)
    return found
