"""Fuzzing: bytes nobody would write, fed to everything that reads a file."""
