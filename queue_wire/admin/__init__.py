"""What queuectl and queue-send say to each other on lock/control."""
