"""The requests of queuectl on the socket lock/control, and the responses of queue-send."""
