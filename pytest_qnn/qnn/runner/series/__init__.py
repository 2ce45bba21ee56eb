"""Steps that make many calls in a row, or several at once."""
