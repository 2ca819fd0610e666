"""From a member that comes to a quorum that is bound: members, plans, barrier, deadlines."""
