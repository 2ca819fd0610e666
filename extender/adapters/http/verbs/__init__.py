"""kube-scheduler's verbs: their wire format and their answers."""
