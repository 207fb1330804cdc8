"""Tools that look into a build: comparison, timing against peers, inspection."""
