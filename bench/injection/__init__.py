"""The parts of bench/inject."""
