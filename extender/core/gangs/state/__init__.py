"""State of gangs, and the values that the other packages of `gangs` share."""
