"""The subcommands of queue-report, one a module."""
