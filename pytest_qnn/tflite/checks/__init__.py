"""What rules of several areas check with: lookups in traces, comparisons, measurements."""
