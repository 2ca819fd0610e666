"""What is known of gangs, and the values that the other rooms of the planner share."""
