"""The subcommands of queuectl, one module each; messages/change.py has the six that change messages."""
