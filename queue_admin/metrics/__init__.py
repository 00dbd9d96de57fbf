"""queuectl metrics: the figures of a running suite, as OpenMetrics; a dashboard and alert rules for it."""
