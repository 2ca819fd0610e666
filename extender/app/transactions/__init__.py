"""Transactions over several objects: in force whole, or taken back."""
