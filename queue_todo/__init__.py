"""queue-todo, the classifier: splits each new envelope into local and remote recipients."""
