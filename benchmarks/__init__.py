"""Each peer and the physical limit beside us, in one run; `make bench` prints ratios."""
