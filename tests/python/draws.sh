#!/bin/sh
# Stands for the program: says how wide its terminal is, and gives a result.
echo "terminal of $(stty size <&2 | cut -d ' ' -f 2) columns" >&2
echo result
