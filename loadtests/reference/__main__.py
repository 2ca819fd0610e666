"""Builds the reference extender if needed, and runs it until interrupted; it parses the arguments.

python -m loadtests.reference --listen 127.0.0.1:9090 --bind-without-writing
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from extender.shipped.errors import ClusterError
from extender.shipped.progress import Progress
from loadtests.reference import built


def main() -> NoReturn:
    try:
        program = built(Progress())
    except ClusterError as error:
        sys.exit(str(error))
    os.execv(program, ["reference", *sys.argv[1:]])


if __name__ == "__main__":
    main()
