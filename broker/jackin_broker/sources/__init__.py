"""Where values come from: one file a source, and the resolver that asks them all."""
