"""The reference delegate and its variants."""
