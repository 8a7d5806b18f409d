"""Training: the one loop, optimisers and schedules by name, feeds, replicas, device and signals."""
