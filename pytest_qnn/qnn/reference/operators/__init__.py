"""The operators of the reference backend, in numpy: a file for each family; `table` has all of them."""
