"""Publishing: what of a run goes along, its card, one commit on the Hub or the same layout in a folder."""
