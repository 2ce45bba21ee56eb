"""The operators of the reference backend, in numpy: a file for each family, and `table`, which has all of them."""
