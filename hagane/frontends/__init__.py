"""Model files become graphs."""
