"""Build the reference extender if need be, and run it until it is interrupted; arguments are its own (--help).

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
