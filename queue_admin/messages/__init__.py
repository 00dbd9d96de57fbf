"""The messages of a queue: reading them from disk, selecting some, changing them with or without queue-send."""
