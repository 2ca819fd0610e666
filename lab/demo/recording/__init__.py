"""Recording: runs a command in a terminal of its own and writes its screens as an animated picture.

`screen` is a terminal as far as our commands use one, `film` writes its screens as SVG, `__main__` runs the command.
"""
