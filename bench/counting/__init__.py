"""The parts of bench/counts: what each daemon asks of the kernel for a message."""
