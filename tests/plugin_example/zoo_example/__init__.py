"""A plug-in of provenzoo."""
