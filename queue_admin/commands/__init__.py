"""The subcommands of queuectl, one module each; change.py has the six that change messages."""
