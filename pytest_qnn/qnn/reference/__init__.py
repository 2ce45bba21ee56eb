"""The reference QNN backend, and emulated rpcmem."""
