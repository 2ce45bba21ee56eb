"""Which nodes a runtime gives to which kernel, and the picture of it."""
