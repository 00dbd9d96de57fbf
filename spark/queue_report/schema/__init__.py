"""The tables of a lake: their columns, and these in the types of Arrow and of Spark."""
