"""queue-pickup: copies mail from maildrop/ into the queue."""
