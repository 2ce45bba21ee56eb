"""What processes hold and use: mappings, blocks of malloc, pages, processor time."""
