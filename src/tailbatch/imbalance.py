"""Facts about labels and neighborhoods."""
