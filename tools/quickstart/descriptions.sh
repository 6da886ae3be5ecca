#!/usr/bin/env bash
# usage: descriptions.sh FOLDER
# Writes the descriptions of all packages known to apt into FOLDER as data for the quickstart:
#   text-{train,eval}.txt            documents for masked-language-model training
#   sections-{train,eval,test}.tsv   archive section TAB description, for classification
set -euo pipefail
export LC_ALL=C
here=$(dirname "${BASH_SOURCE[0]}")
out=$1
smallest=400

mkdir -p "$out"
lists=$(bash "$here/apt_lists.sh" .deps/apt)
# Translations first: the packages that follow look their long descriptions up in them.
mapfile -t files < <(grep _Translation-en <<<"$lists" || true; grep -v _Translation-en <<<"$lists")
awk -f "$here/descriptions.awk" "${files[@]}" | sort >"$out/all.tmp"
cut -f 3 "$out/all.tmp" | sort | uniq -c | awk '{ print $2 "\t" $1 }' >"$out/sections.counts"
rm -f "$out"/text-*.txt "$out"/sections-*.tsv
awk -v out="$out" -v smallest=$smallest -f "$here/write_splits.awk" "$out/sections.counts" "$out/all.tmp"
rm "$out/all.tmp"
