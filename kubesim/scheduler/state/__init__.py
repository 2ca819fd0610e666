"""State: pods and nodes as the scheduler counts them, and what is known of each."""
