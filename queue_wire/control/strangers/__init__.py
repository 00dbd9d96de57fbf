"""The control files about clients that nobody knows."""
