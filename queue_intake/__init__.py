"""queue-intake: takes messages over QMTP and QMQP, and puts them into the queue."""
