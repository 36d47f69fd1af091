"""Room: selection."""
