"""Child processes that end with their starter: start, settings and secrets, watch, end."""
