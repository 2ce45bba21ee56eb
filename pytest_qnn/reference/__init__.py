"""The reference QNN backend, reference delegates and emulated rpcmem."""
