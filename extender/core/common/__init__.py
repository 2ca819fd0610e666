"""Mechanisms that know nothing of scheduling: back-off, bounded memory, timers, budgets."""
