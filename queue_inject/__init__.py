"""Everything that puts mail in: queue-inject, queue-enqueue, queue-pickup."""
