#!/bin/sh
# usage: with_python.sh PYTHON COMMAND…: runs the command; exit code 77, a test that is skipped, where there is no PYTHON.
if ! [ -x "$1" ]; then
  echo "skipped: there is no $1 with the peers to compare with; ./run setup makes .deps/python"
  exit 77
fi
shift
exec "$@"
