"""`python -m extender` is `escher`."""

import os
import sys

# Nothing here is linear algebra: threads for that would only be there, each with memory of its own, and be forked.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def start() -> None:
    """As `escher`; who interrupts it before a command has begun sees one line and no traceback."""
    try:
        from extender.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.exit("escher: interrupted; nothing was started")


if __name__ == "__main__":
    start()
