"""The administrator's side of queue-send: the admin socket, orders, queries, the watchdog."""
