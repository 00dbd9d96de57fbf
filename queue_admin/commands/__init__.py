"""The subcommands of queuectl, one a module."""
