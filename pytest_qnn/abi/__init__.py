"""C layouts, declared once. No behaviour."""
