#!/bin/sh
# Build the delegate: sh build.sh [a compiler's further options]
set -e
cd "$(dirname "$0")"
mkdir -p build
gcc -std=c11 -O2 -Wall -Wextra -Werror "$@" -shared -fPIC -fvisibility=hidden \
    -o build/libarithmetic.so src/arithmetic_delegate.c
