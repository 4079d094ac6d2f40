"""Redis Cluster: which node owns a key, and takes whose keys are on several nodes."""
