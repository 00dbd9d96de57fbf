"""Deliveries of one channel: messages are loaded, jobs are given to the delivery daemon, verdicts are recorded."""
