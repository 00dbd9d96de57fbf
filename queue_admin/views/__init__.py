"""What queuectl shows of the whole queue: its messages one after the other, and tables and lists of them."""
