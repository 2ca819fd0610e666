"""Files that Escher ships: where they are, what the custom resources are, and the supported versions of Kubernetes."""
