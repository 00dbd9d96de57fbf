"""queue-send with hostile mail: what its turns cost, and how long another user's mail waits."""
