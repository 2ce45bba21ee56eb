"""How QNN cases are generated: building blocks that the areas of rules share."""
