"""Rules about other pods, as kube-scheduler applies them: affinity, anti-affinity, spread."""
