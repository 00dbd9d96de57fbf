"""The programs that put mail in the queue: queue-inject, queue-enqueue, sendmail and queue-pickup."""
