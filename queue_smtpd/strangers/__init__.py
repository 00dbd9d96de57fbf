"""What is done about clients that nobody knows: limits, a pause before the greeting, DNS lists, greylisting."""
