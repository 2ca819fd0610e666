"""`python -m extender` is `escher`."""

from extender.cli.main import main

if __name__ == "__main__":
    main()
