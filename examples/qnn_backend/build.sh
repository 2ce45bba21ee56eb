#!/bin/sh
# Build the backend: sh build.sh [a compiler's further options]
set -e
cd "$(dirname "$0")"
mkdir -p build
gcc -std=c11 -O2 -Wall -Wextra -Werror "$@" -shared -fPIC -fvisibility=hidden -pthread \
    -o build/libexample.so src/example_backend.c -lm
