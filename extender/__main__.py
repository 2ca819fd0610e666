"""`python -m extender` is `escher`."""

import os
import signal
import sys

# Nothing here is linear algebra: threads for that would only be there, each with memory of its own, and be forked.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

_INTERRUPTED = "escher: interrupted; nothing was started"


def start() -> None:
    """As `escher`; who interrupts it before a command has begun sees one line and no traceback."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # At once, for libraries that are being imported hide a KeyboardInterrupt, or end with another error.
            signal.signal(signal.SIGINT, _end)
        from extender.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _end(*_: object) -> None:
    os.write(2, f"{_INTERRUPTED}\n".encode())
    os._exit(1)


if __name__ == "__main__":
    start()
