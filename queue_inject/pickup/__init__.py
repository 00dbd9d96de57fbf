"""queue-pickup: moves mail from maildrop/ into the queue."""
