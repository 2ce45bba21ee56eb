"""Steps that call a function of the table with something invalid: a handle, or another argument."""
