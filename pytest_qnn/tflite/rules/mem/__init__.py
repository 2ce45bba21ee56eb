"""MEM: its rules and their mutants."""
