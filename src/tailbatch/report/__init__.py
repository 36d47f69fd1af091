"""Facts and results as tables and figures for people; needs no torch."""
