"""queue-report watch: builds that are made again and again by one process."""
