"""Resources: setting of ephemeral resources, their objects and node status, and intents."""
