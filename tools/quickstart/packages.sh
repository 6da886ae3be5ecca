#!/usr/bin/env bash
# usage: tools/quickstart/packages.sh FOLDER
# Writes packages.csv and new.csv into FOLDER: the descriptions of Debian packages with their sections, for docs/tutorials/csv_to_model.md.
# The sections are games, science, sound, fonts and net, with 400 descriptions each. new.csv has no labels, and none of its texts is in
# packages.csv.
set -euo pipefail
usage() {
  echo "usage: tools/quickstart/packages.sh FOLDER" >&2
  echo "$1" >&2
  exit 2
}
case "${1:-}" in -h | --help) sed -n '2,5s/^# //p' "$0"; exit ;; esac
for word; do case "$word" in -*) usage "packages.sh: error: unrecognized arguments: $word" ;; esac; done
(($# == 1)) || usage "packages.sh: error: expected one FOLDER, found $# arguments"
[[ -d $1 ]] || usage "packages.sh: error: there is no folder $1"
out=$(cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bash tools/quickstart/descriptions.sh "$scratch"
# csv HEADER FILE: the rows of the five sections, with the columns of the header.
csv() {
  awk -F '\t' -v header="$1" '
    BEGIN { print header }
    $1 ~ /^(games|science|sound|fonts|net)$/ && rows[$1]++ < 400 {
      gsub(/"/, "\"\"", $2)
      print (header ~ /section/ ? $1 "," : "") "\"" $2 "\""
    }' "$2"
}
csv section,description "$scratch/sections-train.tsv" >"$out/packages.csv"
csv description "$scratch/sections-test.tsv" >"$out/new.csv"
