"""What `escher doctor` looks at, and what it makes of it: mistakes of a set-up, each with how to mend it.

    from_files, from_cluster, from_service --> facts --> checks --> findings

`facts` is what was read, as plain data, and what could not be. A check is a function of the facts and does nothing;
there are those of kube-scheduler's configuration (`profile_checks`, `entry_checks`), of the cluster (`install_checks`,
`node_checks`, `pod_checks`) and of the service (`service_checks`). `gates` is the one module here that changes
something. Start reading at `checks`.
"""
