# Reads apt's Translation-en files and then its Packages files; writes one line a package:
#   key TAB split TAB section TAB text
# key orders the lines at random but always the same; split is train, eval or test, and all packages of one source
# package are in the same one, because their descriptions are variants of each other; text is the description's
# paragraphs, separated by the character \001.
# A hyphenated package name becomes "this package": names such as librust-…-dev would give the section away.

BEGIN {
  for (i = 0; i < 256; i++) code[sprintf("%c", i)] = i
}

FNR == 1 { finish() }
/^$/ { finish(); next }
/^[ \t]/ { if (field == "Description") body = body substr($0, 2) "\n"; next }
{
  colon = index($0, ":")
  field = substr($0, 1, colon - 1)
  value = substr($0, colon + 2)
  if (field == "Package") package = value
  else if (field == "Source") { source = value; sub(/ .*/, "", source) }
  else if (field == "Section") { section = value; sub(/.*\//, "", section) }
  else if (field == "Description-md5") md5 = value
  else if (field == "Description-en") { field = "Description"; translation = 1; title = value }
  else if (field == "Description") title = value
}
END { finish() }

function finish() {
  if (translation) long[md5] = title "\n" body
  else if (package != "" && !(package in seen)) {
    seen[package] = 1
    emit(md5 in long ? long[md5] : title "\n" body)
  }
  package = source = section = md5 = title = body = field = ""
  translation = 0
}

function emit(description,    text, place) {
  text = tidy(package ~ /-/ ? without_name(description) : description)
  # The same text a second time would be counted twice, or be known before it is asked for.
  if (section == "" || length(text) < 20 || text in known) return
  known[text] = 1
  place = hash(source == "" ? package : source) % 10
  printf "%08d\t%s\t%s\t%s\n", hash(package " " section), place == 0 ? "test" : place == 1 ? "eval" : "train", section, text
}

function without_name(text,    out, at, before, after) {
  while ((at = index(text, package)) > 0) {
    before = at == 1 ? " " : substr(text, at - 1, 1)
    after = substr(text, at + length(package), 1)
    out = out substr(text, 1, at - 1) ((before after) ~ /[A-Za-z0-9]/ ? package : "this package")
    text = substr(text, at + length(package))
  }
  return out text
}

# Debian's markup: " ." is an empty line, lines are broken at 75 columns.
function tidy(text,    n, lines, i, line, out) {
  n = split(text, lines, "\n")
  for (i = 1; i <= n; i++) {
    line = lines[i]
    gsub(/[ \t\001]+/, " ", line)
    sub(/^ /, "", line)
    sub(/ $/, "", line)
    if (i == 2 || line == ".") out = out "\001"
    if (line != "." && line != "") out = out (out == "" || out ~ /\001$/ ? "" : " ") line
  }
  gsub(/\001\001+/, "\001", out)
  sub(/^\001/, "", out)
  sub(/\001$/, "", out)
  return out
}

# A small polynomial hash; every awk computes it exactly, for all values stay below 2^53.
function hash(word,    h, i, n) {
  h = 5381
  n = length(word)
  for (i = 1; i <= n; i++) h = (h * 33 + code[substr(word, i, 1)]) % 99999989
  # The last character alone must not decide the remainder by 10.
  return (h * 7919 + 104729) % 99999989
}
