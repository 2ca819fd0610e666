"""The decisions: filter, bind, requeue, and what events of pods and policies change."""
