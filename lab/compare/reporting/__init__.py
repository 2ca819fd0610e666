"""Reporting: figures, tables, plots and pages, from a run's raw files."""
