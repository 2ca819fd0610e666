"""The life of a gang, from its first member to a bound quorum: members, plans, barrier, deadlines."""
