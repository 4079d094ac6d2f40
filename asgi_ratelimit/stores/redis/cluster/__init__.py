"""Redis Cluster: which node has a key, and takes whose keys are on several nodes."""
