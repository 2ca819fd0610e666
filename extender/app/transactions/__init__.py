"""Transactions over several objects: in force as a whole, or rolled back."""
