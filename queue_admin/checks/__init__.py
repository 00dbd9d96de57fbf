"""The invariants of a queue (inspection), mending it (queue_repair), copies of it (queue_stamp, home_copy)."""
