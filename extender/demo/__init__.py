"""The demonstration: the main job from start to finish on a control plane that is already there.

`scenes` tells the story, `approaches` place gangs in three ways, `outside` watches what really happened, `stage` shows
it. Reached over the network like any other application: of the service it knows the address only.
"""
