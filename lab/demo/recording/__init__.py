"""Recording: a command runs in a terminal of its own, and what that showed becomes an animated picture.

`screen` is a terminal as far as our commands use one, `film` writes what it showed as SVG, `__main__` runs the command.
Knows terminals, and nothing of Escher.
"""
