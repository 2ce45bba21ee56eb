"""Cases on another machine: a command whose standard input and output lead to this package there."""
