"""What `escher doctor` examines: mistakes of a set-up, each with the way to correct it.

    from_files, from_cluster, from_service --> facts --> checks --> findings

`facts` is what was read, as plain data, and what could not be read. A check is a function of the facts without side
effects. There are checks of kube-scheduler's configuration (`profile_checks`, `entry_checks`), of the cluster
(`install_checks`, `node_checks`, `pod_checks`) and of the service (`service_checks`, `replica_checks`). Only `gates`
changes something. Start reading at `checks`.
"""
