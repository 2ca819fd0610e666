"""`python -m extender` is `escher`."""

import sys


def start() -> None:
    """As `escher`; who interrupts it while it is still being loaded sees one line and no traceback."""
    try:
        from extender.cli.main import main
    except KeyboardInterrupt:
        sys.exit("escher: interrupted; nothing was started")
    main()


if __name__ == "__main__":
    start()
