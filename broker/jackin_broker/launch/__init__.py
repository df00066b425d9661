"""Starting an agent in a capsule: one contract (`base`), one file a kind, and what they share."""
