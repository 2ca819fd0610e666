"""What several load tests share: the ledger's witness, lists, sightings, turns."""
