"""How delegate cases are generated: what several areas of rules share."""
