"""Redis Cluster: the node of each key, and takes whose keys are on several nodes."""
