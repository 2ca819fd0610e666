"""Following kinds: list and watch, and what holds while a kind cannot be read."""
