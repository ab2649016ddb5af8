"""The single kinds of rewriting."""
