"""Benchmarks: what performance claims rest on."""
