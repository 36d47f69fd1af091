"""Thin adapters to other frameworks; each needs its extra and nothing else here needs them."""
