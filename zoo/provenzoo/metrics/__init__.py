"""Metrics and losses: functions of tensors; `registry/metrics/` gives them their names."""
