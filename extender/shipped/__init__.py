"""Files that Escher ships: paths, custom resource definitions, supported Kubernetes versions."""
