"""`python -m extender` is `escher`."""

import sys


def start() -> None:
    """As `escher`; who interrupts it before a command has begun sees one line and no traceback."""
    try:
        from extender.cli.main import main

        main()
    except KeyboardInterrupt:
        sys.exit("escher: interrupted; nothing was started")


if __name__ == "__main__":
    start()
