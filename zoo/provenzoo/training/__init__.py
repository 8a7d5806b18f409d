"""The one training loop and what it runs on: optimisers and schedules by name, feeds, replicas, the device."""
