"""`python -m extender` runs `escher`."""

import os
import signal
import sys

# No code here uses linear algebra: its threads would only take memory, and forks would copy them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

_INTERRUPTED = "escher: interrupted; nothing was started"
_NO_LAB = "escher: this command needs the extra `lab`: pip install 'escher-kubernetes[lab]'."


def start() -> None:
    """Runs `escher`. An interrupt before a command begins prints one line and no traceback."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # At once, because libraries that are being imported hide a KeyboardInterrupt, or end with another error.
            signal.signal(signal.SIGINT, _end)
        from extender.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "lab":
            raise
        sys.exit(_NO_LAB)


def _end(*_: object) -> None:
    os.write(2, f"{_INTERRUPTED}\n".encode())
    os._exit(1)


if __name__ == "__main__":
    start()
