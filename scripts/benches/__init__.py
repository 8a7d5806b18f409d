"""The rows of the bench, a file a part of the zoo."""
