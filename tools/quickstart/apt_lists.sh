#!/usr/bin/env bash
# usage: apt_lists.sh FOLDER
# Fetches the package lists of this machine's own apt sources, with English long descriptions, into FOLDER; the
# system's lists stay untouched, and no right beyond writing FOLDER is needed. Prints the list files, one a line.
# Without a network, writes what apt already knows (short descriptions) into FOLDER and prints that instead.
set -euo pipefail

folder=$1
mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
folder=$(cd "$folder" && pwd)
options=(
  -o "Dir::State=$folder" -o "Dir::State::Lists=$folder/lists" -o "Dir::Cache=$folder/cache"
  -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Dir::State::status=/var/lib/dpkg/status
  -o Acquire::Languages=en -o Acquire::GzipIndexes=false -o Acquire::Retries=1 -o Acquire::http::Timeout=20
  -o APT::Sandbox::User=root -o APT::Update::Post-Invoke= -o APT::Update::Post-Invoke-Success=
)
present() { find "$folder/lists" -maxdepth 1 -type f -name '*_Packages' -size +0 | grep -q .; }

# Lists fetched once are used again: a repeated quickstart sees the same data.
if ! present; then
  apt-get "${options[@]}" update >"$folder/update.log" 2>&1 || true
fi
if present; then
  find "$folder/lists" -maxdepth 1 -type f \( -name '*_Translation-en' -o -name '*_Packages' \) | LC_ALL=C sort -t_ -k2
else
  apt-cache dumpavail >"$folder/known_Packages" 2>>"$folder/update.log" || true
  if [ ! -s "$folder/known_Packages" ]; then
    echo "apt knows no packages here and fetched no lists ($folder/update.log says why)." >&2
    exit 1
  fi
  echo "$folder/known_Packages"
fi
