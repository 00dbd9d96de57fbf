"""The parts of bench/run: this suite and Postfix under the same loads, in turn."""
