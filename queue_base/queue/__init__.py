"""The queue on disk: where its files lie, how they are made and removed, and what stands beside them."""
