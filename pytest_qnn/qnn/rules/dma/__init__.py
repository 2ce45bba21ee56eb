"""DMA: its rules and their mutants."""
