"""Rules: the checks, by what they look at."""
