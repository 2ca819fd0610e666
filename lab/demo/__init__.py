"""The demonstration: the main job from start to finish on a control plane that is already there.

`performance` plays it: `scenes` tell the story, `approaches` place gangs in three ways, `outside` watches what really
happened, `measuring` takes the times. `stage` shows the story and the `picture` that `board` puts together; `recording`
keeps it. Reached over the network like any other application: of the service it knows the address only.
"""
