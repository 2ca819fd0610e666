"""Queue: which gang is next, and whether it may fit."""
