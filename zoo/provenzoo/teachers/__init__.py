"""Teachers: functions that a student is trained to imitate, with their ground truth."""
