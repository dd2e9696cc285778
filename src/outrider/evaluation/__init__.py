"""Accuracy of a model on tasks with checkable answers."""
