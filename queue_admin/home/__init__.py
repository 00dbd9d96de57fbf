"""The files of a home: making them, their owners and modes, taking a qmail home over and giving it back."""
