"""The demonstration: the main job from start to finish on an existing control plane.

`performance` plays it: `scenes` tell the story, `approaches` place gangs in three ways, `outside` watches what really
happened, `measuring` takes the times. `stage` shows the story and the `picture` that `board` composes; `recording`
records it. The demo reaches the service over the network like any application, and needs only its address.
"""
