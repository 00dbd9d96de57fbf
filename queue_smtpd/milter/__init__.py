"""What looks at mail before it is queued: milters, which may change or refuse it, and a program of QUEUE_ENQUEUE."""
