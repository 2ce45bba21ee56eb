"""C layouts and codes of QNN and rpcmem, declared once. No behaviour."""
