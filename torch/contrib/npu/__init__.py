r"""What models for NPUs have in common."""
