"""What bench/report is made of: logs of any size, and what queue-report takes for them."""
