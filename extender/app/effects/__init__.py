"""Effects: carry out decisions (Bindings, evictions, wakes, gates and Events), with retries."""
