"""The control files of a home: what is in force, what is wrong in them, and changes of them."""
