"""Fuzzing: arbitrary bytes for everything that reads a file."""
