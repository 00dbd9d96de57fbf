"""System calls that several programs share: paths, durable files, locks, control files, accounts, pipes."""
