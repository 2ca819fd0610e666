"""The ledger: nodes x resources with capacity and holdings, transactions on it, and its audit."""
