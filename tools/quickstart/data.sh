# Sourced by quickstart.sh: leaves these in $folder/data, whatever the source:
#   text-train.txt, text-eval.txt           documents separated by blank lines
#   train.tsv, eval.tsv, test.tsv           a header, then label TAB text (none if there are no labels)

# labelled N FILE [TRAIN]: a header and the first N rows, which lie in a random order that is always the same; of the
# rows of FILE only those whose label occurs in TRAIN, for nothing else can be predicted.
labelled() {
  awk -F '\t' -v limit="$1" '
    BEGIN { print "label\ttext" }
    FILENAME != ARGV[ARGC - 1] { known[$1] = 1; next }
    (ARGC == 2 || $1 in known) && n++ < limit' ${3:+"$3"} "$2"
}

apt_data() {
  title "1. The data: descriptions of all packages known to apt, each with its archive section as label"
  say "The split is by source package, so that no description is tested whose variant was trained on."
  bash $here/descriptions.sh "$folder/data" || die "Without apt's lists, give a folder of texts: ./run quickstart --data DIR"
  labelled "$rows" "$folder/data/sections-train.tsv" >"$folder/data/train.tsv"
  labelled "$held_out" "$folder/data/sections-eval.tsv" "$folder/data/train.tsv" >"$folder/data/eval.tsv"
  labelled "$held_out" "$folder/data/sections-test.tsv" "$folder/data/train.tsv" >"$folder/data/test.tsv"
  awk -v RS= -v ORS='\n\n' -v limit=$((held_out / 2)) 'NR <= limit' "$folder/data/text-eval.txt" >"$folder/data/text-eval.tmp"
  mv "$folder/data/text-eval.tmp" "$folder/data/text-eval.txt"
  say "$(awk -v RS= 'END { print NR }' "$folder/data/text-train.txt") descriptions to read; $rows labelled ones to learn from, of $(awk 'END { print NR }' "$folder/data/sections-train.tsv")."
}

# take_folder: locks $folder, until this and all that it starts have ended, so that nothing is removed under a process that
# still runs.
take_folder() {
  mkdir -p "$folder"
  exec 9>"$folder/lock"
  flock -n 9
}

# own_folder: makes $folder the one of the texts in $data, which those of another folder of the same name do not share.
own_folder() {
  local name=$folder/own/$(basename "$data") number=
  while folder=$name$number; do
    take_folder || die "quickstart: another one is at work in $folder; wait for it, or stop it"
    [ -e "$folder/source" ] || echo "$data" >"$folder/source"
    [ "$(cat "$folder/source")" != "$data" ] || return 0
    number=$((${number:--1} - 1))
  done
}

# require_utf8 FILE…
require_utf8() {
  local file
  for file in "$@"; do
    iconv -f UTF-8 -t UTF-8 "$file" >/dev/null 2>&1 ||
      die "quickstart: $file is not UTF-8; iconv -f WINDOWS-1252 -t UTF-8 converts, if that is its encoding"
  done
}

# Every tenth document and labelled row is held out, and every second of those for the test.
own_data() {
  title "1. The data: the texts of $data"
  local texts
  mapfile -t texts < <(find "$data" -type f -name '*.txt' | LC_ALL=C sort)
  [ ${#texts[@]} -gt 0 ] || die "quickstart: no *.txt in $data"
  require_utf8 "${texts[@]}"
  rm -f "$folder"/data/*
  # A line of spaces separates documents like an empty one, as it does for funicular tokenize.
  awk 'FNR == 1 && NR > 1 { print "" } { sub(/[ \t\r]+$/, ""); print }' "${texts[@]}" |
    awk -v RS= -v out="$folder/data" '{ print $0 "\n" > (out "/text-" (NR % 10 == 0 ? "eval" : "train") ".txt") }'
  [ -s "$folder/data/text-train.txt" ] || die "quickstart: the *.txt in $data hold no text"
  local held=1
  [ -s "$folder/data/text-eval.txt" ] || { held=; cp "$folder/data/text-train.txt" "$folder/data/text-eval.txt"; }
  say "${#texts[@]} files, $(cat "$folder"/data/text-train.txt ${held:+"$folder/data/text-eval.txt"} | awk -v RS= 'END { print NR }') documents (a blank line separates two)."
  [ -n "$held" ] || say "Fewer than 10 documents: none is held out, so loss and perplexity are those of the texts that are trained on."
  if [ -f "$data/labels.tsv" ]; then
    require_utf8 "$data/labels.tsv"
    split_labels "$data/labels.tsv"
    [ ! -f "$folder/data/train.tsv" ] ||
      say "$(awk 'END { print NR - 1 }' "$folder/data/train.tsv") labelled rows to learn from, of labels.tsv."
  fi
}

# A label of which no row is left to learn from cannot be asked for either.
split_labels() {
  awk -F '\t' -v out="$folder/data" -v file="$1" '
    { sub(/\r$/, "") }
    NR == 1 && $1 == "label" { next }
    NF != 2 { print file ":" NR ": expected label TAB text, found " NF " columns" > "/dev/stderr"; exit 1 }
    { split_name = ++rows[$1] % 10 ? "train" : rows[$1] % 20 ? "eval" : "test"
      if (!(split_name in begun)) { begun[split_name] = 1; print "label\ttext" > (out "/" split_name ".tsv") }
      print > (out "/" split_name ".tsv") }
    END { if (NR && !("test" in begun))
            print file ": nothing is fine-tuned: of no label are there 20 rows, of which one would be held out for the test; expected label TAB text, with 20 rows or more of a label" > "/dev/stderr" }' "$1"
  [ -s "$folder/data/test.tsv" ] || rm -f "$folder"/data/{train,eval,test}.tsv
}
